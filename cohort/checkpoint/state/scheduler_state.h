/// The states of LibTorch's learning-rate schedulers, with Python's keys, so that a run goes on in the other language.
///
/// A scheduler's rates are in the optimizer's state: load that, too, and construct the scheduler with the same settings.
///
/// LibTorch keeps less than Python: there are no `base_lrs`, which are left out, so that Python's scheduler keeps those that it
/// was constructed with. LibTorch's StepLR does not make a first step when it is constructed, as Python's does, so that its rates
/// fall one step later; a run that goes on, in either direction, goes on with the rates that the other language would have had.
/// Thread-safety: none.
#pragma once

#include <ATen/core/ivalue.h>

#include "cohort/export.h"

namespace torch::optim {
class LRScheduler;
class Optimizer;
class ReduceLROnPlateauScheduler;
}  // namespace torch::optim

namespace cohort::checkpoint {

/// {"last_epoch": 3, "_step_count": 4, "_last_lr": [0.01], ...}, and, of a StepLR, "step_size" and "gamma". `optimizer`: its own.
/// Of a class derived by the program: what LRScheduler has.
COHORT_API c10::IValue scheduler_state_dict(const torch::optim::LRScheduler& scheduler,
                                            const torch::optim::Optimizer& optimizer);
/// Takes the number of steps. Throws c10::ValueError where it is no such dict, or a StepLR was constructed with another
/// step_size or gamma; the scheduler is then unchanged.
COHORT_API void load_scheduler_state_dict(torch::optim::LRScheduler& scheduler, const c10::IValue& state);

/// All of Python's ReduceLROnPlateau but default_min_lr. LibTorch computes with float32 where Python has float64.
COHORT_API c10::IValue scheduler_state_dict(const torch::optim::ReduceLROnPlateauScheduler& scheduler,
                                            const torch::optim::Optimizer& optimizer);
/// Takes what the dict has, settings too, as Python does. Throws c10::ValueError where it is no such dict; the scheduler is then
/// unchanged.
COHORT_API void load_scheduler_state_dict(torch::optim::ReduceLROnPlateauScheduler& scheduler,
                                          const c10::IValue& state);

}  // namespace cohort::checkpoint
