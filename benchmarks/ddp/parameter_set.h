/// ParameterSet: the parameters of a known model, each with the matrix work of a layer: the work of DDP with large models,
/// without their other layers. ddp_step_rank.py has the same in Python.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <string>
#include <vector>

namespace cohort::bench {

using Shapes = std::vector<std::vector<int64_t>>;

/// 161 tensors, 25.6 million numbers, in torchvision's order.
Shapes resnet50_shapes();
/// 148 tensors, 124.4 million numbers, in nanoGPT's order; the head is the token embedding.
Shapes gpt_124m_shapes();

/// Returns the number of columns of the widest matrix.
int64_t num_inputs(const Shapes& shapes);

class ParameterSet : public torch::nn::Module {
 public:
  explicit ParameterSet(const Shapes& shapes);
  /// Maps `x` [rows, num_inputs(shapes)] to a number. A parameter with several dimensions is a matrix that multiplies the first
  /// columns of x, plus the mean of the result before it: gradients become ready one after the other, from the last to the first.
  at::Tensor forward(const at::Tensor& x);
};

}  // namespace cohort::bench
