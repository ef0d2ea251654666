/// Conversions of the fields of an optimizer's kind (parallel/optim/optimizer_kind.h) to and from the values of Python's state
/// dicts; and an optimizer's state that was read, but not set yet.
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/optim/optimizer.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cohort/parallel/optim/optimizer_kind.h"

namespace cohort::checkpoint::detail {

/// Absent if the field is left out of the dict. Tensors share memory with the field.
std::optional<c10::IValue> value_of(const optim::Field& field);

/// Copies tensors: one with the parameter's sizes to its dtype and device, others as Python does. None leaves a tensor undefined.
/// `where`: "parameter group 0", "the state of \"weight\""; `kind`: "Adam".
/// Throws c10::ValueError, which names the field, for values of another type or size, and for values with which the optimizer
/// cannot go on.
void set_value(const optim::Field& field, const c10::IValue& value, const at::Tensor& parameter,
               const std::string& where, const std::string& kind);

/// Whether Python's optimizers and schedulers put the option into parameter groups beside others, or it has no effect: None,
/// False.
bool may_be_ignored(const std::string& option, const c10::IValue& value);

/// Returns the value as Python prints it, tensors by their sizes.
std::string text_of(const c10::IValue& value);

/// Returns a state after its fields were set; null if it is empty, such as one of SGD whose momentum_buffer is None.
/// Throws c10::ValueError if a tensor is missing that these options need.
std::unique_ptr<torch::optim::OptimizerParamState> checked_state(
    const optim::OptimizerKind& kind, const torch::optim::OptimizerOptions& options,
    std::unique_ptr<torch::optim::OptimizerParamState> state, const std::string& where);

/// Throws c10::NotImplementedError if the kind is not known.
const optim::OptimizerKind& kind_of(const torch::optim::Optimizer& optimizer);

struct LoadedOptimizer {
  /// One per group.
  std::vector<std::unique_ptr<torch::optim::OptimizerOptions>> options;
  /// By parameter; other parameters have no state afterwards.
  std::vector<std::pair<at::Tensor, std::unique_ptr<torch::optim::OptimizerParamState>>> states;

  void commit(torch::optim::Optimizer& optimizer);
};

/// Returns the optimizer that has the full state: of a ZeroRedundancyOptimizer the consolidated one, otherwise itself. Throws
/// c10::Error if it was not consolidated on this rank (PyTorch's text).
const torch::optim::Optimizer& full_optimizer_of(const torch::optim::Optimizer& optimizer);
/// Calls `load` with an optimizer that has the full state, and sets `optimizer` to the result.
void load_full(torch::optim::Optimizer& optimizer, const std::function<void(torch::optim::Optimizer& full)>& load);

}  // namespace cohort::checkpoint::detail
