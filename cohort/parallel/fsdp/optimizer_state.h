/// The state of an optimizer of shards as that of an ordinary optimizer, and back: for checkpoints that any number of ranks, with
/// fully_shard or without it, can go on from. As get_optimizer_state_dict of torch/distributed/checkpoint/state_dict.py with
/// full_state_dict and cpu_offload, and set_optimizer_state_dict with full_state_dict and broadcast_from_rank0; the dictionary
/// is an optimizer here, as it is for ZeroRedundancyOptimizer::state_dict().
///
///     torch::optim::AdamW optimizer(model->parameters());             // of shards
///     std::optional<torch::optim::AdamW> full;                        // what a single process would have
///     if (rank == 0) full.emplace(whole_net->parameters());
///     fsdp::get_full_optimizer_state(fsdp::sharded_parameters(*model), optimizer, full ? &*full : nullptr);
///     if (rank == 0) checkpoint::save_checkpoint(path, *whole_net, &*full);
///
/// Tensors travel one after the other, so that only rank 0 needs memory for a whole state. Parameters are known by their places
/// in the groups: `full` may be over another model's.
///
/// `parameters`: full_tensor.h gives a model's, Sharding::sharded_parameters() those of one call; shards that are not the
/// optimizer's do no harm. Parameters of the optimizer that are not among them, such as those that fully_shard was told to
/// ignore, are whole on every rank, and rank 0's state of them counts.
///
/// Both functions are collective over the ranks that share the parameters; `full` is read or written on rank 0 of their group and
/// ignored elsewhere. What is wrong on rank 0, all ranks throw.
/// Throw c10::NotImplementedError for kinds other than LibTorch's SGD, Adam, AdamW, Adagrad and RMSprop, and for parameters of
/// several groups of ranks; c10::ValueError where no parameter is a shard, where `full` is null or does not fit; c10::Error where
/// the ranks' optimizers differ.
/// Thread-safety: as collectives.
#pragma once

#include <torch/optim/optimizer.h>

#include <vector>

#include "cohort/export.h"
#include "cohort/parallel/fsdp/tensors/sharded_parameter.h"

namespace cohort::fsdp {

/// `full` gets the options of `optimizer`, and the state of every parameter that has one.
COHORT_API void get_full_optimizer_state(const std::vector<ShardedParameter>& parameters,
                                         const torch::optim::Optimizer& optimizer, torch::optim::Optimizer* full);

/// `optimizer` gets the options of `full` and this rank's part of its state. Parameters without a state there have none
/// afterwards. If it throws before tensors travel, `optimizer` is unchanged.
COHORT_API void set_full_optimizer_state(const std::vector<ShardedParameter>& parameters,
                                         torch::optim::Optimizer& optimizer, const torch::optim::Optimizer* full);

}  // namespace cohort::fsdp
