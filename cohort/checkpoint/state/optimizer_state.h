/// An optimizer's state in the two layouts that PyTorch has.
///
/// As optimizer.state_dict() in Python, so that a run goes on there, and one of Python's here:
///
///     {"state": {0: {"step": tensor(3.), "exp_avg": ...}, ...}, "param_groups": [{"lr": 0.001, ..., "params": [0, 1]}]}
///
/// and by parameter name, so that training goes on exactly, even when parameters are grouped or ordered in another way. Keys are
/// those of PyTorch's flattened optimizer state dicts (torch.distributed.checkpoint):
///
///     state.layer1.weight.exp_avg            a tensor like the parameter
///     param_groups.layer1.weight.lr          the options of the group that holds the parameter, float64 / int64 / bool
///
/// Knows LibTorch's SGD, Adam, AdamW, Adagrad, RMSprop and LBFGS (the latter not by name), cohort::optim's, and kinds that
/// register_optimizer_kind was told of (cohort/parallel/optim/optimizer_kind.h). A ZeroRedundancyOptimizer gives and takes the
/// whole state: consolidate_state_dict() comes first. For parameters in shards: distributed_state.h.
/// Thread-safety: none.
#pragma once

#include <ATen/core/ivalue.h>

#include "cohort/checkpoint/state/named_tensors.h"
#include "cohort/export.h"

namespace torch::optim {
class Optimizer;
}  // namespace torch::optim

namespace cohort::checkpoint {

/// Python's layout: a dict with Python's keys in Python's order. Options that LibTorch does not have get Python's defaults;
/// cohort::optim's optimizers say fused=True, with which Python computes the same bits. Tensors share memory with the optimizer.
/// Throws c10::NotImplementedError for a kind that is not known, c10::Error for a ZeroRedundancyOptimizer whose state has not
/// been consolidated on this rank.
COHORT_API c10::IValue optimizer_state_dict(const torch::optim::Optimizer& optimizer);

/// Takes what optimizer.state_dict() has given in Python or here. Tensors are copied, to dtype and device of their parameters.
/// Parameters are known by their places in the groups. Options that only Python has are accepted where they change nothing.
/// Throws c10::ValueError for other groups (PyTorch's texts), for values of another type or size, for options that the optimizer
/// cannot honour, such as maximize=True, and for unknown ones; c10::NotImplementedError for a kind that is not known. The
/// optimizer is then unchanged.
COHORT_API void load_optimizer_state_dict(torch::optim::Optimizer& optimizer, const c10::IValue& state);

/// By name. `parameters`: names and parameters as module->named_parameters() gives them; every parameter of the optimizer must be
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
