/// LogLimit: 10 lines at once, then one more each second. Pure. Private to this folder.
#pragma once

#include <chrono>
#include <cstddef>

namespace cohort::store {

class LogLimit {
 public:
  using Clock = std::chrono::steady_clock;

  /// False: this line is to be left out.
  bool may_speak(Clock::time_point now);
  /// Since the last line that was not.
  size_t num_left_out() const { return num_left_out_; }

 private:
  static constexpr int kMostAtOnce = 10;

  Clock::time_point filled_at_{};
  int num_allowed_ = kMostAtOnce;
  size_t num_left_out_ = 0;
};

}  // namespace cohort::store
