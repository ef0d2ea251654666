#include "cohort/store/stream/log_limit.h"

namespace cohort::store {

bool LogLimit::may_speak(Clock::time_point now) {
  const auto passed = std::chrono::floor<std::chrono::seconds>(now - filled_at_);
  const bool is_full = num_allowed_ + passed.count() >= kMostAtOnce;
  num_allowed_ = is_full ? kMostAtOnce : num_allowed_ + static_cast<int>(passed.count());
  filled_at_ = is_full ? now : filled_at_ + passed;  // seconds count from the first line
  if (num_allowed_ == 0) {
    ++num_left_out_;
    return false;
  }
  --num_allowed_;
  num_left_out_ = 0;
  return true;
}

}  // namespace cohort::store
