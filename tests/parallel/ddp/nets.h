/// Small networks that between them meet what DDP must handle.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <mutex>

#include "tests/support/rounding.h"

namespace cohort::test {

struct MlpImpl : torch::nn::Module {
  explicit MlpImpl(int64_t width = 16) {
    first = register_module("first", torch::nn::Linear(8, width));
    second = register_module("second", torch::nn::Linear(width, width));
    third = register_module("third", torch::nn::Linear(width, 4));
  }
  at::Tensor forward(at::Tensor x) {
    return third->forward(torch::relu(second->forward(torch::relu(first->forward(x)))));
  }
  torch::nn::Linear first{nullptr}, second{nullptr}, third{nullptr};
};
TORCH_MODULE(Mlp);

/// That a number of a gradient of Mlp's comes from, one after the other: of a pass through it and back, and of the rows.
constexpr int64_t kMlpSums = 2 * (8 + 16 + 16) + 4;

/// Two branches; forward uses those asked for, so parameters may go unused on some ranks or on all.
struct BranchesImpl : torch::nn::Module {
  BranchesImpl() {
    trunk = register_module("trunk", torch::nn::Linear(8, 4));
    left = register_module("left", torch::nn::Linear(4, 4));
    right = register_module("right", torch::nn::Linear(4, 4));
  }
  at::Tensor forward(at::Tensor x, bool use_left, bool use_right) {
    x = trunk->forward(x);
    if (use_left) x = x + left->forward(x);
    if (use_right) x = x + right->forward(x);
    return x;
  }
  torch::nn::Linear trunk{nullptr}, left{nullptr}, right{nullptr};
};
TORCH_MODULE(Branches);

/// float and double parameters, and a weight used twice.
struct MixedImpl : torch::nn::Module {
  MixedImpl() {
    shared = register_parameter("shared", torch::randn({8, 8}));
    scale = register_parameter("scale", torch::ones({8}, at::kDouble));
    head = register_module("head", torch::nn::Linear(8, 4));
  }
  at::Tensor forward(at::Tensor x) {
    x = torch::tanh(torch::matmul(x, shared));
    x = torch::matmul(x, shared).to(at::kDouble) * scale;
    return head->forward(x.to(at::kFloat));
  }
  at::Tensor shared, scale;
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(Mixed);

/// Who draws from LibTorch's default generator, which is one for all ranks that are threads.
inline std::mutex drawing;

/// With the same parameters at each call.
template <class Net>
Net seeded_net(auto... arguments) {
  const std::lock_guard lock(drawing);
  torch::manual_seed(5);
  return Net(arguments...);
}

/// Another one for every rank and step.
inline at::Tensor batch_of(int rank, int64_t step, int64_t features = 8) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(1000 * step + rank);
  return at::randn({4, features}, generator, at::kFloat);
}

inline std::vector<at::Tensor> trainable(const torch::nn::Module& module) { return module.parameters(); }

}  // namespace cohort::test
