/// An optimizer as this rank has it: a full one, or a ZeroRedundancyOptimizer, which has only the states of its own parameters.
#pragma once

#include <torch/optim/optimizer.h>

#include <unordered_set>

#include "cohort/checkpoint/optimizer/optimizer_values.h"
#include "cohort/parallel/zero/zero_redundancy_optimizer.h"

namespace cohort::checkpoint::detail {

class DividedOptimizer {
 public:
  /// Throws c10::NotImplementedError for an unknown kind.
  explicit DividedOptimizer(torch::optim::Optimizer& optimizer)
      : zero_(dynamic_cast<ZeroRedundancyOptimizer*>(&optimizer)),
        shown_(optimizer),
        local_(zero_ ? zero_->optim() : optimizer),
        kind_(kind_of(local_)) {
    for (const auto& group : local_.param_groups()) {
      for (const auto& parameter : group.params()) own_.insert(parameter.unsafeGetTensorImpl());
    }
  }

  /// Returns the optimizer whose groups and options the program sees.
  torch::optim::Optimizer& shown() const { return shown_; }
  /// Returns the optimizer whose state this rank has.
  torch::optim::Optimizer& local() const { return local_; }
  const optim::OptimizerKind& kind() const { return kind_; }
  bool is_divided() const { return zero_ != nullptr; }
  bool owns(const at::Tensor& parameter) const { return own_.contains(parameter.unsafeGetTensorImpl()); }
  /// Returns null if the parameter has no state.
  torch::optim::OptimizerParamState* state_of(const at::Tensor& parameter) const {
    const auto found = local_.state().find(parameter.unsafeGetTensorImpl());
    return found == local_.state().end() ? nullptr : found->second.get();
  }

 private:
  ZeroRedundancyOptimizer* zero_;
  torch::optim::Optimizer& shown_;
  torch::optim::Optimizer& local_;
  const optim::OptimizerKind& kind_;
  std::unordered_set<const void*> own_;
};

}  // namespace cohort::checkpoint::detail
