#include "cohort/parallel/ddp/engines/fused_step.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <typeinfo>
#include <utility>

#include "cohort/parallel/optim/fused_optimizers.h"

namespace cohort::ddp {
namespace {

using torch::optim::Optimizer;
using torch::optim::OptimizerParamGroup;
using ParameterList = std::vector<at::Tensor>;

// Whether the optimizer is of exactly one of these classes: a derived class may have a step of its own.
template <class... Kinds>
bool is_one_of(const Optimizer& optimizer) {
  return ((typeid(optimizer) == typeid(Kinds)) || ...);
}

}  // namespace

optim::FusedUpdate FusedStep::update_of(const Optimizer& optimizer) {
  if (is_one_of<torch::optim::SGD, optim::SGD>(optimizer)) return optim::fused_sgd;
  if (is_one_of<torch::optim::Adam, optim::Adam>(optimizer)) return optim::fused_adam;
  if (is_one_of<torch::optim::AdamW, optim::AdamW>(optimizer)) return optim::fused_adamw;
  TORCH_CHECK_TYPE(false,
                   "[cohort] fuse_step takes torch::optim::SGD, Adam or AdamW, not this optimizer. Call its step() "
                   "after backward instead.");
}

FusedStep::FusedStep(Optimizer& optimizer, ParameterList parameters)
    : optimizer_(optimizer), parameters_(std::move(parameters)), update_(update_of(optimizer)) {
  std::unordered_map<const void*, size_t> held;
  for (size_t i = 0; i < optimizer.param_groups().size(); ++i) {
    for (const auto& parameter : optimizer.param_groups()[i].params()) held[parameter.unsafeGetTensorImpl()] = i;
  }
  for (const auto& parameter : parameters_) {
    const auto found = held.find(parameter.unsafeGetTensorImpl());
    if (found == held.end()) continue;
    TORCH_CHECK_VALUE(parameter.is_non_overlapping_and_dense(), "[cohort] fuse_step: a parameter of sizes ",
                      parameter.sizes(), " and strides ", parameter.strides(), " has gaps in its memory");
    groups_.insert(*found);
  }
  TORCH_CHECK_VALUE(!groups_.empty(),
                    "[cohort] fuse_step: the optimizer holds none of the reduced parameters. Make it from the "
                    "parameters of the wrapped module.");
}

void FusedStep::on_bucket(const std::vector<size_t>& indices) {
  const at::NoGradGuard no_grad;
  std::vector<ParameterList> of_groups(optimizer_.param_groups().size());
  for (const size_t index : indices) {
    const auto& parameter = parameters_[index];
    const auto found = groups_.find(parameter.unsafeGetTensorImpl());
    if (found != groups_.end() && parameter.grad().defined()) of_groups[found->second].push_back(parameter);
  }
  for (size_t i = 0; i < of_groups.size(); ++i) {
    if (of_groups[i].empty()) continue;
    update_(optimizer_, optimizer_.param_groups()[i], of_groups[i]);
    for (const auto& parameter : of_groups[i]) parameter.mutable_grad().reset();
  }
}

}  // namespace cohort::ddp
