#include "cohort/store/keys/waiting.h"

#include <fmt/format.h>
#include <algorithm>
#include <thread>

#include "cohort/base/text/text.h"

namespace cohort::store {

base::Error wait_timed_out(std::chrono::milliseconds timeout, const Store::Keys& keys) {
  return base::Error(fmt::format("wait timeout after {}ms, keys: {}", timeout.count(), base::join(keys, ", ")));
}

base::Error barrier_timed_out(std::chrono::milliseconds timeout, const std::string& key) {
  return base::Error(fmt::format("barrier timeout after {}ms, key: {}", timeout.count(), key));
}

bool Pauses::rest() {
  const auto left = deadline_ - Clock::now();
  if (left <= Clock::duration::zero()) return false;
  std::this_thread::sleep_for(std::min<Clock::duration>(next_, left));
  next_ = std::min<std::chrono::microseconds>(next_ + next_ / 2, longest_);
  return true;
}

std::chrono::milliseconds Pauses::left() const {
  return std::max(base::time_left(deadline_), std::chrono::milliseconds(0));
}

}  // namespace cohort::store
