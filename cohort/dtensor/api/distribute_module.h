/// Modules whose parameters are DTensors: the module, its members and its registry stay what they are.
///
///     cohort::distribute_module(*model, mesh, [](const std::string& name, torch::nn::Module& part, const DeviceMesh& mesh) {
///       if (name == "up") cohort::distribute_parameters(part, mesh, {{"weight", {Shard(0)}}, {"bias", {Shard(0)}}});
///     });                                                           // all others are replicated
///     torch::optim::AdamW optimizer(model->parameters());
///
/// Gradients lie as their parameters do: a hook moves them there once per backward, so that what is Partial is reduced once (on
/// axes that fully_shard has taken, by fully_shard).
/// torch::load into such a module: each rank reads the whole file and keeps its parts. torch::save of DTensors is an error;
/// checkpoints take them.
/// Collective over the mesh. Before the first backward, and before optimizers have state.
/// Follows distribute_module of torch/distributed/tensor/_api.py; C++ modules have no hooks for input_fn and output_fn.
#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "cohort/dtensor/api/dtensor.h"
#include "cohort/export.h"

namespace cohort {

/// Turns `parameter` into a DTensor, in place: whoever holds it, holds the DTensor. Values: as distribute_tensor.
/// Throws c10::ValueError for a tensor that is a DTensor already or has a gradient, and what distribute_tensor throws.
COHORT_API void distribute_parameter(const at::Tensor& parameter, const DeviceMesh& mesh, const Placements& placements,
                                     std::optional<int> src_rank = 0);

/// Parameters and buffers of the module itself by their names. Throws c10::ValueError for a name that it does not have.
COHORT_API void distribute_parameters(torch::nn::Module& module, const DeviceMesh& mesh,
                                      const std::map<std::string, Placements>& placements,
                                      std::optional<int> src_rank = 0);

/// Called for each module in it, itself first, by the name of which it is the whole path ("" for itself).
using PartitionFn = std::function<void(const std::string& name, torch::nn::Module& module, const DeviceMesh& mesh)>;

/// Makes every parameter and buffer a DTensor: as `partition` wants, else replicated.
COHORT_API void distribute_module(torch::nn::Module& module, const DeviceMesh& mesh, const PartitionFn& partition = {},
                                  std::optional<int> src_rank = 0);

}  // namespace cohort
