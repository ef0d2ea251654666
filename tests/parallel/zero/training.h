/// Optimizers and trainings that the tests of ZeRO compare.
#pragma once

#include <ATen/ATen.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/sgd.h>

#include "cohort/parallel/ddp/distributed_data_parallel.h"
#include "cohort/parallel/optim/fused_optimizers.h"
#include "cohort/parallel/zero/zero_redundancy_optimizer.h"
#include "tests/parallel/ddp/nets.h"
#include "tests/support/require.h"

namespace cohort::test {

using Parameters = std::vector<at::Tensor>;
using ParamGroups = ZeroRedundancyOptimizer::ParamGroups;
using MakeOptimizer = std::unique_ptr<torch::optim::Optimizer> (*)(ParamGroups);

inline std::unique_ptr<torch::optim::Optimizer> make_sgd(ParamGroups groups) {
  return std::make_unique<torch::optim::SGD>(std::move(groups), torch::optim::SGDOptions(0.05).momentum(0.9));
}
inline std::unique_ptr<torch::optim::Optimizer> make_adam(ParamGroups groups) {
  return std::make_unique<torch::optim::Adam>(std::move(groups), torch::optim::AdamOptions(0.01).weight_decay(0.1));
}
inline std::unique_ptr<torch::optim::Optimizer> make_adamw(ParamGroups groups) {
  return std::make_unique<torch::optim::AdamW>(std::move(groups), torch::optim::AdamWOptions(0.01).betas({0.8, 0.95}));
}
inline std::unique_ptr<torch::optim::Optimizer> make_fused_adamw(ParamGroups groups) {
  return std::make_unique<optim::AdamW>(std::move(groups), torch::optim::AdamWOptions(0.01).betas({0.8, 0.95}));
}
// It makes its state in the constructor.
inline std::unique_ptr<torch::optim::Optimizer> make_adagrad(ParamGroups groups) {
  return std::make_unique<torch::optim::Adagrad>(std::move(groups), torch::optim::AdagradOptions(0.05));
}

struct OptimizerKind {
  const char* name;
  MakeOptimizer make;
};
inline constexpr OptimizerKind kOptimizerKinds[] = {{"sgd", make_sgd},
                                                    {"adam", make_adam},
                                                    {"adamw", make_adamw},
                                                    {"fused_adamw", make_fused_adamw},
                                                    {"adagrad", make_adagrad}};

/// Matrices, and the rest with options of their own where the optimizer is AdamW.
inline ParamGroups two_groups(const Parameters& parameters, MakeOptimizer make) {
  ParamGroups groups{Parameters(), Parameters()};
  for (const auto& parameter : parameters) groups[parameter.dim() == 1].params().push_back(parameter);
  if (make == make_adamw) {
    groups[1].set_options(
        std::make_unique<torch::optim::AdamWOptions>(torch::optim::AdamWOptions(0.03).weight_decay(0.2)));
  }
  return groups;
}

inline void require_same(const Parameters& ours, const Parameters& theirs) {
  REQUIRE(ours.size() == theirs.size());
  for (size_t i = 0; i < ours.size(); ++i) {
    if (at::equal(ours[i], theirs[i])) continue;
    throw std::runtime_error(c10::str("tensor ", i, " differs by ", (ours[i] - theirs[i]).abs().max().item<double>()));
  }
}

/// The bytes of all tensors in an optimizer's state: of SGD, Adam, AdamW and Adagrad.
inline int64_t num_state_bytes(const torch::optim::Optimizer& optimizer) {
  int64_t count = 0;
  const auto add = [&](const at::Tensor& tensor) {
    if (tensor.defined()) count += tensor.numel() * static_cast<int64_t>(tensor.element_size());
  };
  for (const auto& [parameter, state] : optimizer.state()) {
    if (const auto* sgd = dynamic_cast<torch::optim::SGDParamState*>(state.get())) add(sgd->momentum_buffer());
    if (const auto* adagrad = dynamic_cast<torch::optim::AdagradParamState*>(state.get())) add(adagrad->sum());
    const auto add_averages = [&](const auto* adam) {
      if (!adam) return;
      add(adam->exp_avg());
      add(adam->exp_avg_sq());
    };
    add_averages(dynamic_cast<torch::optim::AdamParamState*>(state.get()));
    add_averages(dynamic_cast<torch::optim::AdamWParamState*>(state.get()));
  }
  return count;
}

}  // namespace cohort::test
