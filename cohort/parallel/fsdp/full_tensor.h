/// full_tensor: gathers one full parameter of a fully_shard module on one rank, for checkpoints and for whatever else a process
/// does alone with a full model (DTensor.full_tensor gathers it on all ranks).
///
///     for (const auto& parameter : cohort::fsdp::sharded_parameters(*model)) {
///       const at::Tensor full = cohort::fsdp::full_tensor(parameter);             // on all ranks
///       if (rank == 0) tensors.insert(parameter.name, full);
///     }
///
/// Thread-safety: as collectives.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <vector>

#include "cohort/export.h"
#include "cohort/parallel/fsdp/tensors/sharded_parameter.h"

namespace cohort::fsdp {

/// Returns every parameter that calls of fully_shard on `model` and on modules in it have sharded, by its name in `model`, each
/// once, in the order of named_parameters().
COHORT_API std::vector<ShardedParameter> sharded_parameters(const torch::nn::Module& model);

/// Collective over the ranks that share the parameter; for a DTensor or a layer's shard, also over its mesh, and over replicas.
/// Returns: on rank 0 of their group (the first on all axes) the values of all shards, a copy without gradient; elsewhere an
/// undefined tensor.
COHORT_API at::Tensor full_tensor(const ShardedParameter& parameter);

}  // namespace cohort::fsdp
