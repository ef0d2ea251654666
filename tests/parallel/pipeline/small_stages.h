/// Small models in a row, with numbers that every rank can draw for itself.
#pragma once

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <string>

#include "cohort/parallel/pipeline/pipeline_schedule.h"
#include "tests/parallel/tensor/numbers.h"

namespace cohort::test {

inline constexpr int kNumParts = 4;

/// What errors say where the ranks of a pipeline differ.
inline const std::string kPipelinesAlike =
    "\n  hint: all ranks of a pipeline need the same schedule and options; the inputs of a stage are the outputs of "
    "the stage before it; two ranks with tied parameters must name each other's stage, and the same parameters in the "
    "same order";

inline void draw_parameters(torch::nn::Module& module, uint64_t seed) {
  const at::NoGradGuard no_grad;
  for (at::Tensor& parameter : module.parameters()) parameter.copy_(drawn(parameter.sizes().vec(), seed++) / 3);
}

inline at::Tensor squares(const at::Tensor& output, const at::Tensor& target) { return at::mse_loss(output, target); }

/// All of them make one step of an optimizer.
inline void run_steps(PipelineSchedule& schedule, int64_t num_steps, const TensorList& inputs,
                      const at::Tensor& target) {
  for (int64_t step = 1; step <= num_steps; ++step) {
    schedule.set_backward({.num_steps = num_steps, .requires_gradient_sync = step == num_steps});
    schedule.step(inputs, {.target = target});
  }
}

}  // namespace cohort::test
