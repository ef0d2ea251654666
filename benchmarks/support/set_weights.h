/// The initial weights of ranks in C++ and in Python (set_weights of training_rank.py). Needs LibTorch.
#pragma once

#include <ATen/Context.h>
#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

#include <cmath>

namespace cohort::bench {

/// Draws matrices and filters in order; norms are 1, biases 0.
inline void set_weights(const torch::nn::Module& module) {
  const at::NoGradGuard no_grad;
  at::manual_seed(7);
  for (const auto& entry : module.named_parameters()) {
    auto parameter = entry.value();
    if (parameter.dim() > 1) {
      const double bound = 1 / std::sqrt(static_cast<double>(parameter.numel() / parameter.size(0)));
      parameter.uniform_(-bound, bound);
    } else {
      parameter.fill_(entry.key().ends_with("weight") ? 1.0 : 0.0);
    }
  }
}

}  // namespace cohort::bench
