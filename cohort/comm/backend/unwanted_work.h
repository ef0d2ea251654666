/// UnwantedWork: tells backends that the caller ignores the Works of a thread's operations, as a synchronous public call does. A
/// backend that has run such an operation in the calling thread then returns finished_work() instead of making a Work.
#pragma once

#include <c10/util/intrusive_ptr.h>

namespace c10d {
class Work;
}

namespace cohort::comm {

/// Applies as long as it lives, in the thread that made it, unless `is_unwanted` is false. May be nested.
class UnwantedWork {
 public:
  explicit UnwantedWork(bool is_unwanted = true) : was_unwanted_(is_unwanted_) { is_unwanted_ = is_unwanted; }
  ~UnwantedWork() { is_unwanted_ = was_unwanted_; }
  UnwantedWork(const UnwantedWork&) = delete;
  UnwantedWork& operator=(const UnwantedWork&) = delete;

  /// Whether the calling thread's Works are unwanted.
  static bool here() { return is_unwanted_; }

 private:
  static inline constinit thread_local bool is_unwanted_ = false;
  const bool was_unwanted_;
};

/// Returns the one shared Work, which has completed. Its result() and getFuture() throw c10::Error.
const c10::intrusive_ptr<c10d::Work>& finished_work();

}  // namespace cohort::comm
