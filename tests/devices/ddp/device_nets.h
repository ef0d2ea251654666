/// Small networks on one or two devices.
#pragma once

#include <ATen/ATen.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <optional>

#include "tests/devices/in_stream.h"

namespace cohort::sim {

/// Its two halves on two devices.
struct TwoDeviceNetImpl : torch::nn::Module {
  TwoDeviceNetImpl() {
    using torch::nn::Sequential;
    front =
        register_module("front", Sequential(torch::nn::Linear(20, 64), torch::nn::ReLU(), torch::nn::Linear(64, 64)));
    back = register_module("back", Sequential(torch::nn::ReLU(), torch::nn::BatchNorm1d(64), torch::nn::Linear(64, 64),
                                              torch::nn::ReLU(), torch::nn::Linear(64, 5)));
  }
  void place(c10::Device on_first, c10::Device on_second) {
    front->to(on_first);
    back->to(on_second);
    first = on_first;
    second = on_second;
  }
  at::Tensor forward(const at::Tensor& x) { return back->forward(front->forward(x.to(first)).to(second)); }

  torch::nn::Sequential front, back;
  c10::Device first = at::kCPU, second = at::kCPU;
};
TORCH_MODULE(TwoDeviceNet);

/// Two halves, of which the left one runs in a side stream where there is one. Backward begins with the half that came last.
struct TwoStreamNetImpl : torch::nn::Module {
  TwoStreamNetImpl() {
    left = register_module("left", torch::nn::Linear(20, 30));
    right = register_module("right", torch::nn::Linear(20, 30));
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor from_left, from_right;
    if (left_is_first) from_left = run_left(x);
    from_right = right(x);
    if (!left_is_first) from_left = run_left(x);
    return from_left * from_right;
  }
  at::Tensor run_left(const at::Tensor& x) {
    std::optional<InStream> in;
    if (side) in.emplace(*side);
    return left(x).tanh();
  }

  torch::nn::Linear left{nullptr}, right{nullptr};
  std::optional<c10::Stream> side;
  bool left_is_first = true;
};
TORCH_MODULE(TwoStreamNet);

/// Outer device, inner device, outer device: the inner one's bucket is full before the bucket that is reduced first. On the inner
/// device there is a layer that only some steps use.
struct SandwichImpl : torch::nn::Module {
  SandwichImpl() {
    middle = register_module("middle", torch::nn::Linear(20, 20));  // first, for its bucket to come last
    bottom = register_module("bottom", torch::nn::Linear(20, 20));
    top = register_module("top", torch::nn::Linear(20, 20));
    spare = register_module("spare", torch::nn::Linear(20, 20));
  }
  void place(c10::Device on_inner, c10::Device on_outer) {
    bottom->to(on_outer);
    middle->to(on_inner);
    top->to(on_outer);
    spare->to(on_inner);
    inner = on_inner;
    outer = on_outer;
  }
  at::Tensor forward(const at::Tensor& x) {
    auto y = middle(bottom(x.to(outer)).tanh().to(inner)).tanh();
    if (uses_spare) y = y + spare(y);
    return top(y.to(outer));
  }

  torch::nn::Linear bottom{nullptr}, middle{nullptr}, top{nullptr}, spare{nullptr};
  c10::Device inner = at::kCPU, outer = at::kCPU;
  bool uses_spare = true;
};
TORCH_MODULE(Sandwich);

}  // namespace cohort::sim
