/// What torch.optim.SGD, Adam and AdamW do with fused=True (torch/optim/{sgd,adam}.py), on the state that LibTorch's optimizers
/// keep: one pass over memory, by one kernel for all parameters of a device and dtype.
///
/// Options are read at each call, so schedules work; what a loaded state has in another layout, dtype or place is brought into
/// the parameter's. Versions of parameters are bumped, as of all that is written in place: Python's fused optimizers do not.
/// Thread-safety: none; no other thread may use the optimizer, its parameters and their gradients meanwhile.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace torch::optim {
class Optimizer;
class OptimizerParamGroup;
}  // namespace torch::optim

namespace cohort::optim {

/// Updates `parameters`, which are in `group` of the optimizer and satisfy can_fuse. Requires: gradients are not recorded.
/// Throws c10::Error where a gradient or a state has other sizes than its parameter.
using FusedUpdate = void (*)(torch::optim::Optimizer& optimizer, const torch::optim::OptimizerParamGroup& group,
                             const std::vector<at::Tensor>& parameters);

void fused_sgd(torch::optim::Optimizer& optimizer, const torch::optim::OptimizerParamGroup& group,
               const std::vector<at::Tensor>& parameters);
void fused_adam(torch::optim::Optimizer& optimizer, const torch::optim::OptimizerParamGroup& group,
                const std::vector<at::Tensor>& parameters);
void fused_adamw(torch::optim::Optimizer& optimizer, const torch::optim::OptimizerParamGroup& group,
                 const std::vector<at::Tensor>& parameters);

/// Whether the kernels take a parameter with its gradient: both dense, without gaps in the parameter's memory, and of one
/// floating-point or complex dtype, on a device that has the kernels.
bool can_fuse(const at::Tensor& parameter);

}  // namespace cohort::optim
