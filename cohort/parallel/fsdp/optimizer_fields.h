/// The state that an optimizer keeps for a parameter, as numbers and tensors that can be sharded as the parameter is, for any
/// kind of optimizer (parallel/optim/optimizer_kind.h).
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace cohort::fsdp {

struct OptimizerFields {
  /// Integers as they are, others by their bits; the step count first.
  std::vector<int64_t> numbers;
  /// Tensors of the parameter's sizes; undefined if the optimizer's options do not need them.
  std::vector<at::Tensor> tensors;
};

/// Whether fields_of and set_fields know the optimizer's kind, and no state of it belongs to several parameters together.
bool is_divisible(const torch::optim::Optimizer& optimizer);
/// Throws c10::NotImplementedError if the optimizer is not divisible.
void check_divisible(const torch::optim::Optimizer& optimizer);
/// Returns as many numbers (zeros) and tensors (undefined) as every state of the optimizer has. Requires is_divisible.
OptimizerFields blank_fields(const torch::optim::Optimizer& optimizer);

/// Returns the optimizer's own tensors. If absent, the optimizer has no state of this parameter. Requires is_divisible.
std::optional<OptimizerFields> fields_of(const torch::optim::Optimizer& optimizer, const at::Tensor& parameter);
/// Makes the optimizer take the tensors. Requires is_divisible.
void set_fields(torch::optim::Optimizer& optimizer, const at::Tensor& parameter, OptimizerFields fields);

}  // namespace cohort::fsdp
