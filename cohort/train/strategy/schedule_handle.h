/// Schedule: a learning-rate scheduler of a task, and when it steps.
///
///     torch::optim::StepLR decay(optimizer, 30);
///     std::vector<cohort::train::Schedule> schedulers = {cohort::train::every_epoch(decay)};
///     schedulers.push_back(every_step(one_cycle));                                 // after each step of the optimizer
///     schedulers.push_back(every_epoch(plateau, {.monitor = "validation/loss"}));  // its step() takes a number
///
/// The scheduler must outlive the Schedule. Checkpoints keep the scheduler's state if it has state_dict() and load_state_dict(),
/// or is one of LibTorch's.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "cohort/export.h"

namespace torch::optim {
class LRScheduler;
class Optimizer;
class ReduceLROnPlateauScheduler;
}  // namespace torch::optim

namespace cohort::train {

struct ScheduleOptions {
  /// Steps once in this many steps or epochs.
  int64_t frequency = 1;
  /// The number that the scheduler's step() takes: "validation/loss", "validation/accuracy", "train/loss". If it has not been
  /// computed since the last step, the scheduler waits.
  std::string monitor = "validation/loss";
};

struct Schedule {
  enum class Interval { kStep, kEpoch };
  Interval interval = Interval::kEpoch;
  ScheduleOptions options = {};
  bool takes_metric = false;
  std::function<void(double metric)> step;
  /// If null, the scheduler has no state.
  std::function<c10::IValue(const torch::optim::Optimizer& optimizer)> state_dict = {};
  std::function<void(const c10::IValue& state)> load_state_dict = {};
};

namespace detail {

COHORT_API Schedule schedule_of(torch::optim::LRScheduler& scheduler);
COHORT_API Schedule schedule_of(torch::optim::ReduceLROnPlateauScheduler& scheduler);

template <class Scheduler>
requires requires(Scheduler& scheduler, const c10::IValue& state) {
  scheduler.state_dict();
  scheduler.load_state_dict(state);
}
Schedule schedule_of(Scheduler& scheduler) {
  Schedule schedule;
  if constexpr (requires { scheduler.step(); }) {
    schedule.step = [&scheduler](double) { scheduler.step(); };
  } else {
    schedule.takes_metric = true;
    schedule.step = [&scheduler](double metric) { scheduler.step(metric); };
  }
  schedule.state_dict = [&scheduler](const torch::optim::Optimizer&) { return c10::IValue(scheduler.state_dict()); };
  schedule.load_state_dict = [&scheduler](const c10::IValue& state) { scheduler.load_state_dict(state); };
  return schedule;
}

}  // namespace detail

template <class Scheduler>
Schedule every_epoch(Scheduler& scheduler, ScheduleOptions options = {}) {
  Schedule schedule = detail::schedule_of(scheduler);
  schedule.options = std::move(options);
  return schedule;
}

template <class Scheduler>
Schedule every_step(Scheduler& scheduler, ScheduleOptions options = {}) {
  Schedule schedule = every_epoch(scheduler, std::move(options));
  schedule.interval = Schedule::Interval::kStep;
  return schedule;
}

}  // namespace cohort::train
