/// An optimizer's state in PyTorch's two layouts.
///
/// As optimizer.state_dict() in Python, so that a run can go on in Python, and a Python run here:
///
/// ```python
/// {"state": {0: {"step": tensor(3.), "exp_avg": ...}, ...}, "param_groups": [{"lr": 0.001, ..., "params": [0, 1]}]}
/// ```
///
/// And by parameter name, so that training goes on exactly, even if parameters are grouped or ordered in another way. Keys are
/// those of PyTorch's flattened optimizer state dicts (torch.distributed.checkpoint):
///
/// ```text
/// state.layer1.weight.exp_avg            a tensor like the parameter
/// param_groups.layer1.weight.lr          the options of the group that holds the parameter, float64 / int64 / bool
/// ```
///
/// Knows LibTorch's SGD, Adam, AdamW, Adagrad, RMSprop and LBFGS (the latter not by name), cohort::optim's, and kinds from
/// register_optimizer_kind (cohort/parallel/optim/optimizer_kind.h). A ZeroRedundancyOptimizer returns and takes the
/// full state: call consolidate_state_dict() before. For sharded parameters: distributed_state.h.
/// Thread-safety: none.
#pragma once

#include <ATen/core/ivalue.h>

#include "cohort/checkpoint/optimizer/named_tensors.h"
#include "cohort/export.h"

namespace torch::optim {
class Optimizer;
}  // namespace torch::optim

namespace cohort::checkpoint {

/// Returns Python's layout: a dict with Python's keys in Python's order. Options that LibTorch lacks have Python's defaults;
/// cohort::optim's optimizers have fused=True, with which Python computes the same bits. Tensors share memory with the optimizer.
/// Throws c10::NotImplementedError for an unknown kind, c10::Error for a ZeroRedundancyOptimizer whose state has not
/// been consolidated on this rank.
COHORT_API c10::IValue optimizer_state_dict(const torch::optim::Optimizer& optimizer);

/// Loads a dict that optimizer.state_dict() has returned, in Python or here. Copies tensors to dtype and device of their
/// parameters. Identifies parameters by their positions in the groups. Accepts options that only Python has if they change
/// nothing.
/// Throws c10::ValueError for other groups (PyTorch's texts), for values of another type or size, for options that the optimizer
/// does not support, such as maximize=True, and for unknown ones; c10::NotImplementedError for an unknown kind. If it throws, the
/// optimizer is unchanged.
COHORT_API void load_optimizer_state_dict(torch::optim::Optimizer& optimizer, const c10::IValue& state);

/// Returns the state by name. `parameters`: names and parameters from module->named_parameters(); every parameter of the
/// optimizer must be among them. The state's tensors share memory with the optimizer's own.
/// Throws c10::ValueError for a parameter without a name, c10::NotImplementedError for another kind of optimizer.
COHORT_API StateDict optimizer_state_dict(const torch::optim::Optimizer& optimizer, const StateDict& parameters);

/// Sets state and options of every parameter. The optimizer must have been constructed over the same parameters as the
/// saved one; a parameter that had no state then has none afterwards.
/// Throws c10::Error listing missing and unexpected keys and shapes that differ, c10::ValueError if parameters of one
/// group had different options. If it throws, the optimizer is unchanged.
COHORT_API void load_optimizer_state_dict(torch::optim::Optimizer& optimizer, const StateDict& parameters,
                                          const StateDict& state);

}  // namespace cohort::checkpoint
