/// LogLimit: limits log lines to 10 at once, then one more each second. Pure. Private to this folder.
#pragma once

#include <chrono>
#include <cstddef>

namespace cohort::store {

class LogLimit {
 public:
  using Clock = std::chrono::steady_clock;

  /// Returns false if this line must be left out.
  bool may_speak(Clock::time_point now);
  /// The number of lines left out since the last line that was written.
  size_t num_left_out() const { return num_left_out_; }

 private:
  static constexpr int kMostAtOnce = 10;

  Clock::time_point filled_at_{};
  int num_allowed_ = kMostAtOnce;
  size_t num_left_out_ = 0;
};

}  // namespace cohort::store
