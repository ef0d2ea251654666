/// WriteGuard: explains an illegal access to a full parameter before it ends the process. The parameters of a host exist once,
/// for all its ranks, in pages that modules cannot write, and that forked processes do not have. Without the guard a write to
/// them, or any access in a forked process, would be a bare "Segmentation fault".
///
/// The first guard of a process installs a handler of SIGSEGV, which stays. If the accessed address lies in a guarded parameter,
/// it prints a text to standard error. In any case it then passes the signal on to the earlier handler, as the kernel would have
/// done, also for a signal that somebody has sent (kill, raise). If there was no handler, that ends the process by SIGSEGV.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cohort/export.h"

namespace cohort::fsdp {

class COHORT_TEST_API WriteGuard {
 public:
  struct Range {
    const std::byte* begin = nullptr;
    size_t num_bytes = 0;
    std::string name;                ///< of the parameter
    std::string text = {};           ///< replaces the text about a write to a parameter of fully_shard
    std::string text_in_child = {};  ///< the same for forked processes
  };
  explicit WriteGuard(const std::vector<Range>& ranges);
  ~WriteGuard();
  WriteGuard(const WriteGuard&) = delete;
  WriteGuard& operator=(const WriteGuard&) = delete;

 private:
  size_t place_;
};

}  // namespace cohort::fsdp
