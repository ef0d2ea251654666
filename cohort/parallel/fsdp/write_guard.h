/// WriteGuard: says what a write to a whole parameter was, before it ends the process. The parameters of a host are there once,
/// for all its ranks, in pages that modules cannot write: without a word such a write would be a bare "Segmentation fault".
///
/// The first guard of a process installs a handler of SIGSEGV. It prints a text to standard error where the address lies in a
/// guarded parameter, and gives the signal to whatever handled it before, in any case.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace cohort::fsdp {

class WriteGuard {
 public:
  struct Range {
    const std::byte* begin = nullptr;
    size_t num_bytes = 0;
    std::string name;
    std::string text = {};  ///< instead of that about a parameter of fully_shard with this name
  };
  explicit WriteGuard(const std::vector<Range>& ranges);
  ~WriteGuard();
  WriteGuard(const WriteGuard&) = delete;
  WriteGuard& operator=(const WriteGuard&) = delete;

 private:
  size_t place_;
};

}  // namespace cohort::fsdp
