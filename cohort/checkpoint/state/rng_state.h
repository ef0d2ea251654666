/// Random numbers: the states of generators, as Python's torch.get_rng_state() and torch.cuda.get_rng_state_all() give them.
/// Thread-safety: each generator is locked while its state is read or set.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

#include <vector>

#include "cohort/export.h"

namespace cohort::checkpoint {

/// State of LibTorch's default CPU generator; the same bytes as Python's torch.get_rng_state().
COHORT_API at::Tensor rng_state();
COHORT_API void set_rng_state(const at::Tensor& state);

/// Of the default generator of `device`, in CPU memory; the same bytes as torch.cuda.get_rng_state(device).
/// Throws what LibTorch throws for a device that is not there or has no generator.
COHORT_API at::Tensor rng_state(c10::Device device);
COHORT_API void set_rng_state(const at::Tensor& state, c10::Device device);

/// {"cpu": tensor, "cuda": [tensor, ...]}: the CPU's, and those of all devices of the accelerator, if there is one, under its
/// name.
COHORT_API c10::IValue all_rng_states();
/// Throws c10::ValueError, before anything is set, where it is not such a dict, or this machine has another number of devices
/// than it has states. States of another type of accelerator are left out, and a warning says so.
COHORT_API void set_all_rng_states(const c10::IValue& states);

}  // namespace cohort::checkpoint
