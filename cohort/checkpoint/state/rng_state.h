/// Random-number states of generators, in the form of Python's torch.get_rng_state() and torch.cuda.get_rng_state_all().
/// Thread-safety: each generator is locked while its state is read or set.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

#include <vector>

#include "cohort/export.h"

namespace cohort::checkpoint {

/// Returns the state of LibTorch's default CPU generator; the same bytes as Python's torch.get_rng_state().
COHORT_API at::Tensor rng_state();
COHORT_API void set_rng_state(const at::Tensor& state);

/// Returns the state of `device`'s default generator, in CPU memory; the same bytes as torch.cuda.get_rng_state(device).
/// Throws what LibTorch throws for a device that does not exist or has no generator.
COHORT_API at::Tensor rng_state(c10::Device device);
COHORT_API void set_rng_state(const at::Tensor& state, c10::Device device);

/// Returns {"cpu": tensor, "cuda": [tensor, ...]}: the CPU's state and, if there is an accelerator, the states of all its devices
/// under its name.
COHORT_API c10::IValue all_rng_states();
/// Throws c10::ValueError, before anything is set, for anything but such a dict, or if this machine has another number of devices
/// than there are states. Ignores states of another type of accelerator, with a warning.
COHORT_API void set_all_rng_states(const c10::IValue& states);

}  // namespace cohort::checkpoint
