/// UnwantedWork: says that nobody will look at the Works of a thread's operations, as of a synchronous public call. A backend
/// that has run such an operation in the calling thread then gives finished_work() back, and saves making a Work.
#pragma once

#include <c10/util/intrusive_ptr.h>

namespace c10d {
class Work;
}

namespace cohort::comm {

/// Counts as long as it lives, in the thread that made it, unless `is_unwanted` is false. May be nested.
class UnwantedWork {
 public:
  explicit UnwantedWork(bool is_unwanted = true) : was_unwanted_(is_unwanted_) { is_unwanted_ = is_unwanted; }
  ~UnwantedWork() { is_unwanted_ = was_unwanted_; }
  UnwantedWork(const UnwantedWork&) = delete;
  UnwantedWork& operator=(const UnwantedWork&) = delete;

  /// Of the calling thread.
  static bool here() { return is_unwanted_; }

 private:
  static inline constinit thread_local bool is_unwanted_ = false;
  const bool was_unwanted_;
};

/// One Work for all of them: it has completed. Its result() and getFuture() throw c10::Error.
const c10::intrusive_ptr<c10d::Work>& finished_work();

}  // namespace cohort::comm
