/// The states of LibTorch's learning-rate schedulers, with Python's keys, so that a run can go on in the other language.
///
/// A scheduler's learning rates are in the optimizer's state: load that, too, and construct the scheduler with the same settings.
///
/// LibTorch keeps less than Python: it has no `base_lrs`. The dict leaves them out, so that Python's scheduler keeps those from
/// its constructor. Unlike Python's, LibTorch's StepLR makes no first step when it is constructed, so its learning rates fall one
/// step later; a run that goes on, in either direction, uses the learning rates that the other language would have used.
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

/// Returns {"last_epoch": 3, "_step_count": 4, "_last_lr": [0.01], ...}; for a StepLR also "step_size" and "gamma". `optimizer`:
/// the scheduler's. For a class derived by the program, returns only the keys of LRScheduler.
COHORT_API c10::IValue scheduler_state_dict(const torch::optim::LRScheduler& scheduler,
                                            const torch::optim::Optimizer& optimizer);
/// Sets the number of steps. Throws c10::ValueError for anything but such a dict, or if a StepLR was constructed with another
/// step_size or gamma; the scheduler is unchanged then.
COHORT_API void load_scheduler_state_dict(torch::optim::LRScheduler& scheduler, const c10::IValue& state);

/// Returns all of Python's ReduceLROnPlateau except default_min_lr. LibTorch computes with float32, Python with float64.
COHORT_API c10::IValue scheduler_state_dict(const torch::optim::ReduceLROnPlateauScheduler& scheduler,
                                            const torch::optim::Optimizer& optimizer);
/// Sets everything in the dict, including settings, as Python does. Throws c10::ValueError for anything but such a dict; the
/// scheduler is unchanged then.
COHORT_API void load_scheduler_state_dict(torch::optim::ReduceLROnPlateauScheduler& scheduler,
                                          const c10::IValue& state);

}  // namespace cohort::checkpoint
