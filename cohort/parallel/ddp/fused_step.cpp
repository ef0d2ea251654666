#include "cohort/parallel/ddp/fused_step.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <memory>
#include <tuple>
#include <typeinfo>
#include <utility>

namespace cohort::ddp {
namespace {

using torch::optim::Optimizer;
using torch::optim::OptimizerParamGroup;
using ParameterList = std::vector<at::Tensor>;

template <class State>
State& fused_state_of(Optimizer& optimizer, const at::Tensor& parameter) {
  auto& state = optimizer.state()[parameter.unsafeGetTensorImpl()];
  if (!state) state = std::make_unique<State>();
  return static_cast<State&>(*state);
}

// The kernels walk through the memory of a parameter and of all that belongs to it alike. A state that was loaded may be in
// another order.
at::Tensor in_layout_of(const at::Tensor& parameter, const at::Tensor& tensor) {
  if (tensor.strides() == parameter.strides()) return tensor;
  return at::empty_like(parameter, tensor.options()).copy_(tensor);
}

at::Tensor zeros_for(const at::Tensor& parameter) { return at::zeros_like(parameter, at::MemoryFormat::Preserve); }

template <class Options, class State, class Kernel>
void update_adam(Optimizer& optimizer, const OptimizerParamGroup& group, const ParameterList& parameters,
                 Kernel kernel) {
  const auto& options = static_cast<const Options&>(group.options());
  ParameterList gradients;
  ParameterList averages;
  ParameterList squares;
  ParameterList largest_squares;
  ParameterList steps;
  for (const auto& parameter : parameters) {
    auto& state = fused_state_of<State>(optimizer, parameter);
    state.step(state.step() + 1);
    state.exp_avg(state.exp_avg().defined() ? in_layout_of(parameter, state.exp_avg()) : zeros_for(parameter));
    state.exp_avg_sq(state.exp_avg_sq().defined() ? in_layout_of(parameter, state.exp_avg_sq()) : zeros_for(parameter));
    gradients.push_back(in_layout_of(parameter, parameter.grad()));
    averages.push_back(state.exp_avg());
    squares.push_back(state.exp_avg_sq());
    steps.push_back(at::full({}, static_cast<double>(state.step()), parameter.options().dtype(at::kFloat)));
    if (!options.amsgrad()) continue;
    const auto& largest = state.max_exp_avg_sq();
    state.max_exp_avg_sq(largest.defined() ? in_layout_of(parameter, largest) : zeros_for(parameter));
    largest_squares.push_back(state.max_exp_avg_sq());
  }
  const auto [beta1, beta2] = options.betas();
  kernel(parameters, gradients, averages, squares, largest_squares, steps, options.lr(), beta1, beta2,
         options.weight_decay(), options.eps(), options.amsgrad(), /*maximize=*/false);
}

void step_adam(Optimizer& optimizer, const OptimizerParamGroup& group, const ParameterList& parameters) {
  update_adam<torch::optim::AdamOptions, torch::optim::AdamParamState>(
      optimizer, group, parameters, [](const auto&... arguments) { at::_fused_adam_(arguments...); });
}

void step_adamw(Optimizer& optimizer, const OptimizerParamGroup& group, const ParameterList& parameters) {
  update_adam<torch::optim::AdamWOptions, torch::optim::AdamWParamState>(
      optimizer, group, parameters, [](const auto&... arguments) { at::_fused_adamw_(arguments...); });
}

// Without momentum all go together, as the kernel asks whether there are averages.
void step_sgd(Optimizer& optimizer, const OptimizerParamGroup& group, const ParameterList& parameters) {
  const auto& options = static_cast<const torch::optim::SGDOptions&>(group.options());
  struct {
    ParameterList parameters, gradients, averages;
  } first, later;
  for (const auto& parameter : parameters) {
    auto* to = &later;
    if (options.momentum() != 0) {
      auto& state = fused_state_of<torch::optim::SGDParamState>(optimizer, parameter);
      const auto& average = state.momentum_buffer();
      if (!average.defined()) to = &first;
      state.momentum_buffer(average.defined() ? in_layout_of(parameter, average) : at::empty_like(parameter));
      to->averages.push_back(state.momentum_buffer());
    }
    to->parameters.push_back(parameter);
    to->gradients.push_back(in_layout_of(parameter, parameter.grad()));
  }
  for (const auto* part : {&first, &later}) {
    if (part->parameters.empty()) continue;
    at::_fused_sgd_(part->parameters, part->gradients, part->averages, options.weight_decay(), options.momentum(),
                    options.lr(), options.dampening(), options.nesterov(), /*maximize=*/false,
                    /*is_first_step=*/part == &first);
  }
}

}  // namespace

FusedStep::Update FusedStep::update_of(const Optimizer& optimizer) {
  if (typeid(optimizer) == typeid(torch::optim::SGD)) return step_sgd;
  if (typeid(optimizer) == typeid(torch::optim::Adam)) return step_adam;
  if (typeid(optimizer) == typeid(torch::optim::AdamW)) return step_adamw;
  TORCH_CHECK_TYPE(
      false,
      "fuse_step takes torch::optim::SGD, Adam or AdamW, and this optimizer is another one. Call its step() "
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
    TORCH_CHECK_VALUE(parameter.is_non_overlapping_and_dense(), "fuse_step: a parameter of sizes ", parameter.sizes(),
                      " and strides ", parameter.strides(), " has gaps in its memory");
    groups_.insert(*found);
  }
  TORCH_CHECK_VALUE(!groups_.empty(),
                    "fuse_step: the optimizer holds none of the parameters that are reduced. Make it "
                    "from the parameters of the module that is wrapped.");
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
