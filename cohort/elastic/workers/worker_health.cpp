#include "cohort/elastic/workers/worker_health.h"

#include <fmt/format.h>

namespace cohort::elastic {
namespace {

/// All healthy states count as one; stopped by a debugger counts as stopped.
char class_of(char state) {
  if (state == 't') return 'T';
  return state == 'T' || state == 'D' || state == 'Z' ? state : 'S';
}

}  // namespace

std::optional<std::string> WorkerHealth::observe(char state, int pid, Clock::time_point now) {
  const char before = state_;
  const bool was_said = is_said_;
  now_ = now;
  state_ = class_of(state);
  if (state_ != before) {
    since_ = now;
    is_said_ = false;
    if (before == 'T' && was_said && state_ == 'S') return "goes on";
  }
  const auto needed = state_ == 'D' ? kStuckTime : kStoppedTime;
  if (state_ == 'S' || is_said_ || now - since_ < needed) return std::nullopt;
  is_said_ = true;
  if (state_ == 'T') return fmt::format("is stopped (SIGSTOP or a debugger); kill -CONT {} resumes it", pid);
  if (state_ == 'Z') return "has lost its main thread, while others of its threads still run";
  return fmt::format("has been in uninterruptible sleep for {} s: a disk, a network drive or a device does not answer",
                     std::chrono::duration_cast<std::chrono::seconds>(now - since_).count());
}

std::chrono::milliseconds WorkerHealth::stuck_time() const {
  return state_ == 'D' ? std::chrono::duration_cast<std::chrono::milliseconds>(now_ - since_)
                       : std::chrono::milliseconds(0);
}

}  // namespace cohort::elastic
