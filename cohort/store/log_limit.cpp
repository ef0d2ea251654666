#include "cohort/store/log_limit.h"

#include <algorithm>

namespace cohort::store {

bool LogLimit::may_speak(Clock::time_point now) {
  const auto passed = std::chrono::floor<std::chrono::seconds>(now - filled_at_);
  filled_at_ += passed;
  num_allowed_ = static_cast<int>(std::min<long long>(kMostAtOnce, num_allowed_ + passed.count()));
  if (num_allowed_ == 0) {
    ++num_left_out_;
    return false;
  }
  --num_allowed_;
  num_left_out_ = 0;
  return true;
}

}  // namespace cohort::store
