/// WriteGuard: says what an access to a whole parameter was, before it ends the process. The parameters of a host are there once,
/// for all its ranks, in pages that modules cannot write, and that forked processes do not have: without a word a write to them,
/// or whatever a forked process does with them, would be a bare "Segmentation fault".
///
/// The first guard of a process installs a handler of SIGSEGV, which stays. It prints a text to standard error where the address
/// of an access lies in a guarded parameter, and gives the signal to whatever handled it before, in any case, as the kernel would
/// have: also one that somebody has sent (kill, raise). Where nothing handled it, that ends the process by SIGSEGV.
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
    std::string text = {};           ///< instead of what a write to a parameter of fully_shard is told
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
