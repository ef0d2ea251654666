#include "cohort/parallel/optim/fused_update.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <tuple>

#include "cohort/comm/tensors/plain_tensor.h"

namespace cohort::optim {
namespace {

using torch::optim::Optimizer;
using torch::optim::OptimizerParamGroup;
using ParameterList = std::vector<at::Tensor>;

// The kernels do not mark their writes: without this, backward through a graph from before the step would use the new values for
// those of its forward pass.
void bump_versions(const ParameterList& parameters) {
  for (const auto& parameter : parameters) {
    if (!parameter.is_inference()) parameter.unsafeGetTensorImpl()->bump_version();
  }
}

// A kernel takes tensors of one device and dtype.
std::vector<ParameterList> lists_of_a_kind(const ParameterList& parameters) {
  std::vector<ParameterList> lists;
  for (const auto& parameter : parameters) {
    const auto found = std::find_if(lists.begin(), lists.end(), [&](const ParameterList& list) {
      return list.front().device() == parameter.device() && list.front().scalar_type() == parameter.scalar_type();
    });
    if (found == lists.end()) {
      lists.push_back({parameter});
    } else {
      found->push_back(parameter);
    }
  }
  return lists;
}

template <class State>
State& fused_state_of(Optimizer& optimizer, const at::Tensor& parameter) {
  auto& state = optimizer.state()[parameter.unsafeGetTensorImpl()];
  if (!state) state = std::make_unique<State>();
  return static_cast<State&>(*state);
}

// Views complex numbers as pairs of real ones, as Python's optimizers do.
ParameterList real_ones(ParameterList list) {
  for (auto& tensor : list) {
    if (tensor.is_complex()) tensor = at::view_as_real(tensor);
  }
  return list;
}

// The kernels walk in the same way through the memory of a parameter and of all its tensors, and only check the parameter's size.
at::Tensor like_parameter(const at::Tensor& parameter, const at::Tensor& tensor, const char* name) {
  TORCH_CHECK(tensor.sizes() == parameter.sizes(), "[cohort] The ", name, " of a parameter of sizes ",
              parameter.sizes(), " has sizes ", tensor.sizes());
  if (tensor.strides() == parameter.strides() && tensor.scalar_type() == parameter.scalar_type() &&
      tensor.device() == parameter.device() && !comm::is_lazy(tensor)) {
    return tensor;
  }
  return at::empty_like(parameter).copy_(tensor);
}

at::Tensor average_like(const at::Tensor& parameter, const at::Tensor& average, const char* name) {
  return average.defined() ? like_parameter(parameter, average, name) : at::zeros_like(parameter);
}

// LibTorch counts steps on the host, but the kernels read the count from a tensor per parameter: parameters with the same count
// share one.
class StepTensors {
 public:
  explicit StepTensors(at::TensorOptions options) : options_(options.dtype(at::kFloat).requires_grad(false)) {}

  at::Tensor of(int64_t step) {
    auto& tensor = tensors_[step];
    if (!tensor.defined()) tensor = at::full({}, static_cast<double>(step), options_);
    return tensor;
  }

 private:
  at::TensorOptions options_;
  std::map<int64_t, at::Tensor> tensors_;
};

template <class Options, class State, class Kernel>
void update_adam(Optimizer& optimizer, const OptimizerParamGroup& group, const ParameterList& all, Kernel kernel) {
  const auto& options = static_cast<const Options&>(group.options());
  const auto [beta1, beta2] = options.betas();
  for (const auto& parameters : lists_of_a_kind(all)) {
    ParameterList gradients;
    ParameterList averages;
    ParameterList squares;
    ParameterList largest_squares;
    ParameterList steps;
    std::vector<State*> states;
    for (const auto& parameter : parameters) {
      gradients.push_back(like_parameter(parameter, parameter.grad(), "gradient"));
      auto& state = fused_state_of<State>(optimizer, parameter);
      state.exp_avg(average_like(parameter, state.exp_avg(), "exp_avg"));
      state.exp_avg_sq(average_like(parameter, state.exp_avg_sq(), "exp_avg_sq"));
      averages.push_back(state.exp_avg());
      squares.push_back(state.exp_avg_sq());
      if (options.amsgrad()) {
        state.max_exp_avg_sq(average_like(parameter, state.max_exp_avg_sq(), "max_exp_avg_sq"));
        largest_squares.push_back(state.max_exp_avg_sq());
      }
      states.push_back(&state);
    }
    StepTensors step_tensors(parameters.front().options());
    for (auto* state : states) {
      state->step(state->step() + 1);
      steps.push_back(step_tensors.of(state->step()));
    }
    kernel(real_ones(parameters), real_ones(gradients), real_ones(averages), real_ones(squares),
           real_ones(largest_squares), steps, options.lr(), beta1, beta2, options.weight_decay(), options.eps(),
           options.amsgrad(), /*maximize=*/false);
    bump_versions(parameters);
  }
}

// LibTorch's SGD kernel for the CPU returns wrong numbers for tensors of 16 bits per element that are longer than a vector
// (2.13). This converts them to float32, in which the kernel computes anyway.
class ForSgdKernel {
 public:
  explicit ForSgdKernel(const ParameterList& list) : list_(real_ones(list)), wide_(list_) {
    for (auto& tensor : wide_) {
      if (tensor.is_cpu() && tensor.element_size() == 2) tensor = tensor.to(at::kFloat);
    }
  }
  const ParameterList& list() const { return wide_; }
  void write_back() const {
    for (size_t i = 0; i < list_.size(); ++i) {
      if (!wide_[i].is_same(list_[i])) list_[i].copy_(wide_[i]);
    }
  }

 private:
  const ParameterList list_;
  ParameterList wide_;
};

// Follows torch/utils/_foreach_utils.py.
bool has_fused_kernels(c10::DeviceType type) {
  return type == at::kCPU || type == at::kCUDA || type == at::kXPU || type == at::kMPS || type == at::kHPU ||
         type == at::kMTIA || type == at::kPrivateUse1;
}

bool has_fused_dtype(const at::Tensor& tensor) {
  const auto dtype = tensor.scalar_type();
  return dtype == at::kFloat || dtype == at::kDouble || dtype == at::kHalf || dtype == at::kBFloat16 ||
         dtype == at::kComplexFloat || dtype == at::kComplexDouble;
}

}  // namespace

void fused_adam(Optimizer& optimizer, const OptimizerParamGroup& group, const ParameterList& parameters) {
  update_adam<torch::optim::AdamOptions, torch::optim::AdamParamState>(
      optimizer, group, parameters, [](const auto&... arguments) { at::_fused_adam_(arguments...); });
}

void fused_adamw(Optimizer& optimizer, const OptimizerParamGroup& group, const ParameterList& parameters) {
  update_adam<torch::optim::AdamWOptions, torch::optim::AdamWParamState>(
      optimizer, group, parameters, [](const auto&... arguments) { at::_fused_adamw_(arguments...); });
}

void fused_sgd(Optimizer& optimizer, const OptimizerParamGroup& group, const ParameterList& all) {
  const auto& options = static_cast<const torch::optim::SGDOptions&>(group.options());
  for (const auto& parameters : lists_of_a_kind(all)) {
    // Without momentum all go together, since the kernel checks whether there are averages.
    struct {
      ParameterList parameters, gradients, averages;
    } first, later;
    for (const auto& parameter : parameters) {
      auto* to = &later;
      const auto gradient = like_parameter(parameter, parameter.grad(), "gradient");
      if (options.momentum() != 0) {
        auto& state = fused_state_of<torch::optim::SGDParamState>(optimizer, parameter);
        const auto& average = state.momentum_buffer();
        if (!average.defined()) to = &first;
        state.momentum_buffer(average_like(parameter, average, "momentum_buffer"));
        to->averages.push_back(state.momentum_buffer());
      }
      to->parameters.push_back(parameter);
      to->gradients.push_back(gradient);
    }
    for (const auto* part : {&first, &later}) {
      if (part->parameters.empty()) continue;
      const ForSgdKernel updated(part->parameters);
      const ForSgdKernel gradients(part->gradients);
      const ForSgdKernel averages(part->averages);
      at::_fused_sgd_(updated.list(), gradients.list(), averages.list(), options.weight_decay(), options.momentum(),
                      options.lr(), options.dampening(), options.nesterov(), /*maximize=*/false,
                      /*is_first_step=*/part == &first);
      updated.write_back();
      averages.write_back();
    }
    bump_versions(parameters);
  }
}

bool can_fuse(const at::Tensor& parameter) {
  const auto& gradient = parameter.grad();
  return parameter.layout() == at::kStrided && gradient.defined() && gradient.layout() == at::kStrided &&
         has_fused_dtype(parameter) && !comm::is_lazy(parameter) && gradient.scalar_type() == parameter.scalar_type() &&
         parameter.is_non_overlapping_and_dense() && has_fused_kernels(parameter.device().type());
}

}  // namespace cohort::optim
