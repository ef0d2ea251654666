/// ScheduleSteps: steps the schedulers of a task when they are due.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cohort/train/strategy/schedule_handle.h"
#include "cohort/train/trainer/trainer_core.h"

namespace cohort::train::detail {

class ScheduleSteps {
 public:
  /// Both must outlive this.
  ScheduleSteps(TrainerCore& core, const std::vector<Schedule>& schedules);

  /// Call it after a step of the optimizer, or at the end of an epoch, which counts as done. A scheduler waits if its number has
  /// not been set since its last step.
  void after(Schedule::Interval interval);
  /// The names of the numbers that schedulers take.
  std::vector<std::string> monitors() const;

 private:
  TrainerCore& core_;
  const std::vector<Schedule>& schedules_;
  std::vector<int64_t> times_seen_;  ///< by schedule: how often its number had been set
};

}  // namespace cohort::train::detail
