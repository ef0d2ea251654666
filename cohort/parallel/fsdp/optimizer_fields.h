/// What LibTorch's optimizers keep of a parameter, whatever their kind. Knows SGD, Adam, AdamW, Adagrad and RMSprop.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <array>
#include <cstdint>
#include <optional>

namespace cohort::fsdp {

struct OptimizerFields {
  int64_t step = 0;
  /// Each of the parameter's sizes; undefined: the optimizer's options do without it, or its kind does.
  std::array<at::Tensor, 3> tensors;
};

bool is_known_kind(const torch::optim::Optimizer& optimizer);
/// Throws c10::NotImplementedError for other kinds.
void check_kind_of(const torch::optim::Optimizer& optimizer);

/// Nothing: it has no state of this parameter. The tensors are the optimizer's own. Requires a known kind.
std::optional<OptimizerFields> fields_of(const torch::optim::Optimizer& optimizer, const at::Tensor& parameter);
/// The optimizer takes the tensors. Requires a known kind.
void set_fields(torch::optim::Optimizer& optimizer, const at::Tensor& parameter, OptimizerFields fields);

}  // namespace cohort::fsdp
