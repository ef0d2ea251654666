/// Detects workers that live but do nothing: stopped, stuck in the kernel, or without their main thread. Pure.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace cohort::elastic {

/// The state of one worker, from a series of observations of the kernel's state.
class WorkerHealth {
 public:
  using Clock = std::chrono::steady_clock;

  /// The time for which a state must last before it is reported.
  static constexpr std::chrono::seconds kStoppedTime{1};
  static constexpr std::chrono::seconds kStuckTime{10};

  /// `state` is the letter of /proc/<pid>/stat. Returns a text to report now, each state once, such as "is stopped (SIGSTOP or a
  /// debugger); kill -CONT 4711 resumes it".
  std::optional<std::string> observe(char state, int pid, Clock::time_point now);

  /// How long it had been in uninterruptible sleep at the last observation.
  std::chrono::milliseconds stuck_time() const;

 private:
  char state_ = 'S';
  bool is_said_ = false;
  Clock::time_point since_{};
  Clock::time_point now_{};
};

}  // namespace cohort::elastic
