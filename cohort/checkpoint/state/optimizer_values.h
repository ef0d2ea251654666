/// The fields of an optimizer's kind (parallel/optim/optimizer_kind.h) as the values that Python's state dicts have, and back;
/// and what was read of a whole optimizer, before any of it counts.
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

/// Nothing: it is left out. Tensors share memory with the field.
std::optional<c10::IValue> value_of(const optim::Field& field);

/// Copies tensors: one of the parameter's sizes to its dtype and device, others as Python does. None leaves a tensor undefined.
/// `where`: "parameter group 0", "the state of \"weight\""; `kind`: "Adam".
/// Throws c10::ValueError, which names the field, for values of another type or size, and for those that the optimizer cannot
/// go on with.
void set_value(const optim::Field& field, const c10::IValue& value, const at::Tensor& parameter,
               const std::string& where, const std::string& kind);

/// What Python's optimizers and schedulers put into parameter groups beside options, and what has no effect: None and False.
bool may_be_ignored(const std::string& option, const c10::IValue& value);

/// As Python prints it, tensors by their sizes.
std::string text_of(const c10::IValue& value);

/// A state after its fields were set; null: it says nothing, as one of SGD whose momentum_buffer is None.
/// Throws c10::ValueError where a tensor is missing that these options need.
std::unique_ptr<torch::optim::OptimizerParamState> checked_state(
    const optim::OptimizerKind& kind, const torch::optim::OptimizerOptions& options,
    std::unique_ptr<torch::optim::OptimizerParamState> state, const std::string& where);

/// Throws c10::NotImplementedError where the kind is not known.
const optim::OptimizerKind& kind_of(const torch::optim::Optimizer& optimizer);

struct LoadedOptimizer {
  /// One for each group.
  std::vector<std::unique_ptr<torch::optim::OptimizerOptions>> options;
  /// By parameter; the others have none afterwards.
  std::vector<std::pair<at::Tensor, std::unique_ptr<torch::optim::OptimizerParamState>>> states;

  void commit(torch::optim::Optimizer& optimizer);
};

/// The optimizer that has the whole state: for a ZeroRedundancyOptimizer what was consolidated, else itself. Throws c10::Error
/// where it was not consolidated on this rank (PyTorch's text).
const torch::optim::Optimizer& whole_of(const torch::optim::Optimizer& optimizer);
/// Calls `load` with an optimizer of the whole state, and gives what it has become to `optimizer`.
void load_whole(torch::optim::Optimizer& optimizer, const std::function<void(torch::optim::Optimizer& whole)>& load);

}  // namespace cohort::checkpoint::detail
