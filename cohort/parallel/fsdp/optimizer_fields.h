/// What optimizers keep of a parameter as numbers and tensors that can be cut where the parameter is, whatever their kind
/// (parallel/optim/optimizer_kind.h).
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace cohort::fsdp {

struct OptimizerFields {
  /// Whole numbers as they are, others by their bits; the count of steps first.
  std::vector<int64_t> numbers;
  /// Each of the parameter's sizes; undefined: the optimizer's options do without it.
  std::vector<at::Tensor> tensors;
};

/// True: fields_of and set_fields know its kind, and no state of it is of several parameters together.
bool is_divisible(const torch::optim::Optimizer& optimizer);
/// Throws c10::NotImplementedError for others.
void check_divisible(const torch::optim::Optimizer& optimizer);
/// As many numbers, zeros, and tensors, undefined, as every state of it has. Requires is_divisible.
OptimizerFields blank_fields(const torch::optim::Optimizer& optimizer);

/// Nothing: it has no state of this parameter. The tensors are the optimizer's own. Requires is_divisible.
std::optional<OptimizerFields> fields_of(const torch::optim::Optimizer& optimizer, const at::Tensor& parameter);
/// The optimizer takes the tensors. Requires is_divisible.
void set_fields(torch::optim::Optimizer& optimizer, const at::Tensor& parameter, OptimizerFields fields);

}  // namespace cohort::fsdp
