#include "cohort/train/trainer/schedule_steps.h"

#include <utility>

namespace cohort::train::detail {

ScheduleSteps::ScheduleSteps(TrainerCore& core, const std::vector<Schedule>& schedules)
    : core_(core), schedules_(schedules) {
  for (const auto& schedule : schedules) times_seen_.push_back(core.metrics().times_set(schedule.options.monitor));
}

void ScheduleSteps::after(Schedule::Interval interval) {
  const auto& position = core_.position();
  const int64_t done = interval == Schedule::Interval::kStep ? position.step() : position.epoch() + 1;
  for (size_t i = 0; i < schedules_.size(); ++i) {
    const auto& schedule = schedules_[i];
    if (schedule.interval != interval || done % schedule.options.frequency != 0) continue;
    if (!schedule.takes_metric) {
      schedule.step(0.0);
      continue;
    }
    const int64_t times = core_.metrics().times_set(schedule.options.monitor);
    if (times == std::exchange(times_seen_[i], times)) continue;
    schedule.step(*core_.metrics().find(schedule.options.monitor));
  }
}

std::vector<std::string> ScheduleSteps::monitors() const {
  std::vector<std::string> names;
  for (const auto& schedule : schedules_) {
    if (schedule.takes_metric) names.push_back(schedule.options.monitor);
  }
  return names;
}

}  // namespace cohort::train::detail
