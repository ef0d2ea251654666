#include "cohort/train/strategy/schedule_handle.h"

#include <torch/optim/schedulers/lr_scheduler.h>
#include <torch/optim/schedulers/reduce_on_plateau_scheduler.h>

#include "cohort/checkpoint/optimizer/scheduler_state.h"

namespace cohort::train::detail {
namespace {

template <class Scheduler>
void add_state(Schedule& schedule, Scheduler& scheduler) {
  schedule.state_dict = [&scheduler](const torch::optim::Optimizer& optimizer) {
    return checkpoint::scheduler_state_dict(scheduler, optimizer);
  };
  schedule.load_state_dict = [&scheduler](const c10::IValue& state) {
    checkpoint::load_scheduler_state_dict(scheduler, state);
  };
}

}  // namespace

Schedule schedule_of(torch::optim::LRScheduler& scheduler) {
  Schedule schedule;
  schedule.step = [&scheduler](double) { scheduler.step(); };
  add_state(schedule, scheduler);
  return schedule;
}

Schedule schedule_of(torch::optim::ReduceLROnPlateauScheduler& scheduler) {
  Schedule schedule;
  schedule.takes_metric = true;
  schedule.step = [&scheduler](double metric) { scheduler.step(static_cast<float>(metric)); };
  add_state(schedule, scheduler);
  return schedule;
}

}  // namespace cohort::train::detail
