/// The step of torch.optim.SGD, Adam and AdamW with fused=True (torch/optim/{sgd,adam}.py), on the state of LibTorch's
/// optimizers: one pass over memory, with one kernel for all parameters of a device and dtype.
///
/// Options are read at each call, so schedulers work; a loaded state in another layout, dtype or place is converted to the
/// parameter's. Versions of parameters are bumped, as for other in-place writes; Python's fused optimizers do not do that.
/// Thread-safety: none; no other thread may use the optimizer, its parameters and their gradients meanwhile.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace torch::optim {
class Optimizer;
class OptimizerParamGroup;
}  // namespace torch::optim

namespace cohort::optim {

/// Updates `parameters`, which are in `group` of the optimizer and satisfy can_fuse. Requires: gradients are not recorded. Throws
/// c10::Error if a gradient or a state has other sizes than its parameter.
using FusedUpdate = void (*)(torch::optim::Optimizer& optimizer, const torch::optim::OptimizerParamGroup& group,
                             const std::vector<at::Tensor>& parameters);

void fused_sgd(torch::optim::Optimizer& optimizer, const torch::optim::OptimizerParamGroup& group,
               const std::vector<at::Tensor>& parameters);
void fused_adam(torch::optim::Optimizer& optimizer, const torch::optim::OptimizerParamGroup& group,
                const std::vector<at::Tensor>& parameters);
void fused_adamw(torch::optim::Optimizer& optimizer, const torch::optim::OptimizerParamGroup& group,
                 const std::vector<at::Tensor>& parameters);

/// Whether the kernels support a parameter with its gradient: both dense, without gaps in the parameter's memory, and of one
/// floating-point or complex dtype, on a device that has the kernels.
bool can_fuse(const at::Tensor& parameter);

}  // namespace cohort::optim
