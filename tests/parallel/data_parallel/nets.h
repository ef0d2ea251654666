/// Networks that can be cloned, and what one device makes of parts of a batch, which DataParallel must equal bit for bit.
#pragma once

#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <vector>

namespace cohort::test {

/// Parameters that are used once, twice and not at all, one that is frozen, and BatchNorm's buffers.
struct ManySidedImpl : torch::nn::Cloneable<ManySidedImpl> {
  ManySidedImpl() { ManySidedImpl::reset(); }
  void reset() override {
    first = register_module("first", torch::nn::Linear(6, 8));
    norm = register_module("norm", torch::nn::BatchNorm1d(8));
    last = register_module("last", torch::nn::Linear(8, 3));
    scale = register_parameter("scale", torch::randn({8}));
    frozen = register_parameter("frozen", torch::randn({8}), /*requires_grad=*/false);
    unused = register_parameter("unused", torch::randn({2}));
    passes = register_buffer("passes", torch::zeros({1}));
  }
  at::Tensor forward(const at::Tensor& x) {
    passes += 1;
    return last(torch::tanh(norm(first(x)) * scale + frozen) * scale);
  }
  torch::nn::Linear first{nullptr}, last{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  at::Tensor scale, frozen, unused, passes;
};
TORCH_MODULE(ManySided);

inline at::Tensor loss_of(const at::Tensor& output) { return output.pow(3).sum(); }

/// Gradients by parameter, part after part, added in the order of the parts. Undefined where nothing reaches a parameter.
template <class Net>
std::vector<at::Tensor> gradients_part_by_part(Net net, const at::Tensor& x, int64_t num_parts) {
  const auto parameters = net->parameters();
  std::vector<at::Tensor> sums(parameters.size());
  for (const auto& part : x.chunk(num_parts)) {
    const auto output = net->forward(part);
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (!parameters[i].requires_grad()) continue;
      const auto gradient = torch::autograd::grad({loss_of(output)}, {parameters[i]}, {}, /*retain_graph=*/true,
                                                  /*create_graph=*/false, /*allow_unused=*/true)[0];
      if (gradient.defined()) sums[i] = sums[i].defined() ? sums[i] + gradient : gradient;
    }
  }
  return sums;
}

}  // namespace cohort::test
