/// Converts the state of an optimizer of shards to that of an ordinary optimizer, and back: for checkpoints from which any number
/// of ranks, with or without fully_shard, can continue. As get_optimizer_state_dict of torch/distributed/checkpoint/state_dict.py
/// with full_state_dict and cpu_offload, and set_optimizer_state_dict with full_state_dict and broadcast_from_rank0. In place of
/// the dictionary there is an optimizer here, as in ZeroRedundancyOptimizer::state_dict().
///
///     torch::optim::AdamW optimizer(model->parameters());             // of shards
///     std::optional<torch::optim::AdamW> full;                        // as a single process would have it
///     if (rank == 0) full.emplace(full_net->parameters());
///     fsdp::get_full_optimizer_state(fsdp::sharded_parameters(*model), optimizer, full ? &*full : nullptr);
///     if (rank == 0) checkpoint::save_checkpoint(*full_net, &*full, path);
///
/// Tensors travel one after the other, so that only rank 0 needs memory for a full state. Parameters are identified by their
/// places in the param groups: `full` may belong to another model.
///
/// `parameters`: of a model (full_tensor.h), or of one call (Sharding::sharded_parameters()); shards that do not belong to the
/// optimizer do no harm. Parameters of the optimizer that are not among them, such as those that fully_shard was told to ignore,
/// are full on every rank, and rank 0's state of them counts.
///
/// Both functions are collective over the ranks that share the parameters; `full` is read or written on rank 0 of their group and
/// ignored elsewhere. All ranks throw the errors of rank 0.
/// Throw c10::NotImplementedError for kinds other than LibTorch's SGD, Adam, AdamW, Adagrad and RMSprop, and for parameters of
/// several groups of ranks; c10::ValueError if no parameter is a shard, or if `full` is null or does not fit; c10::Error if the
/// ranks' optimizers differ.
/// Thread-safety: as collectives.
#pragma once

#include <torch/optim/optimizer.h>

#include <vector>

#include "cohort/export.h"
#include "cohort/parallel/fsdp/tensors/sharded_parameter.h"

namespace cohort::fsdp {

/// Gives `full` the options of `optimizer`, and the state of every parameter that has one.
COHORT_API void get_full_optimizer_state(const std::vector<ShardedParameter>& parameters,
                                         const torch::optim::Optimizer& optimizer, torch::optim::Optimizer* full);

/// Gives `optimizer` the options of `full` and this rank's shards of its state. Parameters without a state in `full` have none
/// afterwards. If it throws before tensors travel, `optimizer` is unchanged.
COHORT_API void set_full_optimizer_state(const std::vector<ShardedParameter>& parameters,
                                         torch::optim::Optimizer& optimizer, const torch::optim::Optimizer* full);

}  // namespace cohort::fsdp
