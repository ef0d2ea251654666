/// Small models in a row, with numbers that every rank can draw for itself.
#pragma once

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <cstdint>

#include "tests/parallel/tensor/numbers.h"

namespace cohort::test {

inline constexpr int kNumParts = 4;

inline void draw_parameters(torch::nn::Module& module, uint64_t seed) {
  const at::NoGradGuard no_grad;
  for (at::Tensor& parameter : module.parameters()) parameter.copy_(drawn(parameter.sizes().vec(), seed++) / 3);
}

inline at::Tensor squares(const at::Tensor& output, const at::Tensor& target) { return at::mse_loss(output, target); }

}  // namespace cohort::test
