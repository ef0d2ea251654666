#include "cohort/store/keys/patience.h"

#include <utility>

namespace cohort::store {

void Patience::extend(Milliseconds time, std::function<void()> when_used) {
  const std::lock_guard lock(mutex_);
  time_ = time;
  when_used_ = std::move(when_used);
}

Patience::Milliseconds Patience::use() {
  std::unique_lock lock(mutex_);
  const auto time = time_;
  const auto when_used = std::exchange(when_used_, nullptr);
  lock.unlock();
  if (when_used) when_used();
  return time;
}

}  // namespace cohort::store
