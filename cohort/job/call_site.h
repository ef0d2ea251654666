/// CallSite: the place in the program from which the running public function was called, for records of a rank's calls.
#pragma once

namespace cohort::job {

/// Create one in each public function:  const CallSite site(__builtin_return_address(0));  The outermost one of a thread counts.
class CallSite {
 public:
  explicit CallSite(const void* address) : is_outermost_(current_ == nullptr) {
    if (is_outermost_) current_ = address;
  }
  ~CallSite() {
    if (is_outermost_) current_ = nullptr;
  }
  CallSite(const CallSite&) = delete;
  CallSite& operator=(const CallSite&) = delete;

  /// The call site of the calling thread; null outside of public functions.
  static const void* current() { return current_; }

 private:
  static inline constinit thread_local const void* current_ = nullptr;
  const bool is_outermost_;
};

}  // namespace cohort::job
