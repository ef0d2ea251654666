// zero_rank BACKEND RESULT: what ZeroRedundancyOptimizer makes of one model, by every optimizer, with and without bucket
// views, over the last 1, 2, 3 and 4 ranks. zero_python_rank.py makes the same calls.
#include <ATen/ATen.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <iostream>
#include <numeric>
#include <string>

#include "cohort/checkpoint/file/safetensors.h"
#include "cohort/checkpoint/optimizer/optimizer_state.h"
#include "cohort/comm/group/process_group.h"
#include "cohort/comm/group/subgroups.h"
#include "cohort/parallel/ddp/distributed_data_parallel.h"
#include "cohort/parallel/zero/zero_redundancy_optimizer.h"

namespace {

using Results = cohort::checkpoint::StateDict;
using ParamGroups = cohort::ZeroRedundancyOptimizer::ParamGroups;
using torch::optim::AdamOptions;
using torch::optim::AdamWOptions;
using torch::optim::SGDOptions;

constexpr int kNumSteps = 10;

struct NetImpl : torch::nn::Module {
  NetImpl() {
    first = register_module("first", torch::nn::Linear(6, 10));
    second = register_module("second", torch::nn::Linear(10, 7));
    third = register_module("third", torch::nn::Linear(7, 3));
    const at::NoGradGuard no_grad;
    int seed = 0;
    for (const auto& parameter : parameters()) {
      at::manual_seed(++seed);
      parameter.copy_(at::randn(parameter.sizes()) * 0.3);
    }
  }
  at::Tensor forward(const at::Tensor& x) {
    return third->forward(at::tanh(second->forward(at::tanh(first->forward(x)))));
  }
  torch::nn::Linear first{nullptr}, second{nullptr}, third{nullptr};
};
TORCH_MODULE(Net);

at::Tensor numbers(int seed, at::IntArrayRef shape) {
  at::manual_seed(seed);
  return at::randn(shape);
}

// Matrices, and vectors at another rate. The rate of the first group changes after half of the steps.
template <class Optimizer, class Options>
void train(Results& results, const std::string& name, const cohort::Group& group, bool has_views, Options options) {
  cohort::ddp::Options ddp_options;
  ddp_options.process_group = group;
  cohort::DistributedDataParallel ddp(Net(), ddp_options);
  ParamGroups groups{std::vector<at::Tensor>(), std::vector<at::Tensor>()};
  for (const auto& parameter : ddp->parameters()) groups[parameter.dim() == 1].params().push_back(parameter);
  groups[1].set_options(std::make_unique<Options>(Options(options).lr(options.lr() * 3)));
  auto zero = cohort::ZeroRedundancyOptimizer::make<Optimizer>(
      groups, options, {.process_group = group, .parameters_as_bucket_view = has_views});

  const int rank = cohort::get_rank(group);
  for (int step = 0; step < kNumSteps; ++step) {
    zero.zero_grad();
    const auto output = ddp(numbers(1000 * step + rank, {5, 6}));
    torch::mse_loss(output, numbers(1000 * step + 500 + rank, {5, 3})).backward();
    zero.step();
    if (step + 1 == kNumSteps / 2) zero.param_groups()[0].options().set_lr(options.lr() / 2);
  }

  Results parameters;  // in the order of the groups
  for (const auto& param_group : groups) {
    for (const auto& parameter : param_group.params()) {
      parameters.insert(std::to_string(parameters.size()), parameter);
    }
  }
  for (const auto& item : parameters) {
    results.insert(name + ".value." + item.key(), item.value().detach().clone());
    for (size_t owner = 0; owner < zero.partition().size(); ++owner) {
      for (const auto& param_group : zero.partition()[owner]) {
        for (const auto& parameter : param_group) {
          if (!parameter.is_same(item.value())) continue;
          results.insert(name + ".owner." + item.key(), at::scalar_tensor(static_cast<int64_t>(owner), at::kLong));
        }
      }
    }
  }
  const int last = cohort::get_world_size(group) - 1;
  zero.consolidate_state_dict(last);
  if (rank != last) return;
  for (const auto& item : cohort::checkpoint::optimizer_state_dict(zero.state_dict(), parameters)) {
    results.insert(name + "." + item.key(), item.value().clone());
  }
}

}  // namespace

int main(int, char** argv) {
  try {
    cohort::init_process_group(argv[1]);
    Results results;
    for (int size = 1; size <= cohort::get_world_size(); ++size) {
      std::vector<int> ranks(size);
      std::iota(ranks.begin(), ranks.end(), cohort::get_world_size() - size);
      const auto group = cohort::new_group(ranks);
      if (!cohort::is_member(group)) continue;
      for (const bool has_views : {false, true}) {
        const auto name = [&](const char* kind) {
          return std::string(kind) + "." + std::to_string(size) + (has_views ? ".views" : ".separate");
        };
        train<torch::optim::SGD>(results, name("sgd"), group, has_views, SGDOptions(0.05).momentum(0.9));
        train<torch::optim::Adam>(results, name("adam"), group, has_views, AdamOptions(0.01).weight_decay(0.1));
        train<torch::optim::AdamW>(results, name("adamw"), group, has_views, AdamWOptions(0.01).weight_decay(0.2));
      }
    }
    cohort::checkpoint::save_file(results, argv[2]);
    cohort::destroy_process_group();
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
