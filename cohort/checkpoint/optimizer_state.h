/// An optimizer's state by parameter name, so that training goes on exactly, even when parameters are grouped or ordered
/// in another way. Keys are those of PyTorch's flattened optimizer state dicts (torch.distributed.checkpoint):
///
///     state.layer1.weight.exp_avg            a tensor like the parameter
///     param_groups.layer1.weight.lr          the options of the group that holds the parameter, float64 / int64 / bool
///
/// Knows LibTorch's SGD, Adam, AdamW, Adagrad and RMSprop.
#pragma once

#include "cohort/checkpoint/named_tensors.h"
#include "cohort/export.h"

namespace torch::optim {
class Optimizer;
}  // namespace torch::optim

namespace cohort::checkpoint {

/// `parameters`: names and parameters as module->named_parameters() gives them; every parameter of the optimizer must be
/// among them. The state's tensors share memory with the optimizer's own.
/// Throws c10::ValueError for a parameter without a name, c10::NotImplementedError for another kind of optimizer.
COHORT_API StateDict optimizer_state_dict(const torch::optim::Optimizer& optimizer, const StateDict& parameters);

/// Sets state and options of every parameter. The optimizer must have been constructed over the same parameters as the
/// one saved; a parameter that had no state then has none afterwards.
/// Throws c10::Error listing missing and unexpected keys and shapes that differ, c10::ValueError when parameters of one
/// group had different options. The optimizer is then unchanged.
COHORT_API void load_optimizer_state_dict(torch::optim::Optimizer& optimizer, const StateDict& parameters,
                                          const StateDict& state);

}  // namespace cohort::checkpoint
