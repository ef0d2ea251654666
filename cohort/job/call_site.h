/// CallSite: where in the program the running call of a public function came from, for records of what a rank does.
#pragma once

namespace cohort::job {

/// Lives in a public function:  const CallSite site(__builtin_return_address(0));  The outermost one of a thread counts.
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

  /// Of the calling thread; null outside public functions.
  static const void* current() { return current_; }

 private:
  static inline constinit thread_local const void* current_ = nullptr;
  const bool is_outermost_;
};

}  // namespace cohort::job
