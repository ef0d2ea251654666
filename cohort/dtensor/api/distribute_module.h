/// distribute_module: makes a module's parameters DTensors, without changes to the module, its members or its registry.
///
///     cohort::distribute_module(*model, mesh, [](const std::string& name, torch::nn::Module& part, const DeviceMesh& mesh) {
///       if (name == "up") cohort::dtensor::distribute_parameters(part, mesh, {{"weight", {Shard(0)}}, {"bias", {Shard(0)}}});
///     });                                                           // other parameters are replicated
///     torch::optim::AdamW optimizer(model->parameters());
///
/// Gradients get their parameters' placements: a hook redistributes them once per backward, so that a Partial gradient is reduced
/// once (on mesh axes that fully_shard has taken, by fully_shard).
/// With torch::load into such a module, each rank reads the full file and keeps its shards. torch::save of DTensors is an error;
/// checkpoints accept them.
/// Collective over the mesh. Call it before the first backward, and before optimizers have state.
/// Follows distribute_module of torch/distributed/tensor/_api.py; C++ modules have no hooks for input_fn and output_fn.
#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "cohort/dtensor/api/dtensor.h"
#include "cohort/export.h"

namespace cohort::dtensor {

/// Turns `parameter` into a DTensor, in place: every holder of the parameter has the DTensor. Values: as distribute_tensor.
/// Throws c10::ValueError for a tensor that is a DTensor already or has a gradient, and what distribute_tensor throws.
COHORT_API void distribute_parameter(const at::Tensor& parameter, const DeviceMesh& mesh, const Placements& placements,
                                     std::optional<int> src_rank = 0);

/// Distributes parameters and buffers of the module itself, by name. Throws c10::ValueError for a name that it does not have.
COHORT_API void distribute_parameters(torch::nn::Module& module, const DeviceMesh& mesh,
                                      const std::map<std::string, Placements>& placements,
                                      std::optional<int> src_rank = 0);

}  // namespace cohort::dtensor

namespace cohort {

/// Called for each module in the tree, the root first. `name`: the module's full path ("" for the root).
using PartitionFn = std::function<void(const std::string& name, torch::nn::Module& module, const DeviceMesh& mesh)>;

/// Makes every parameter and buffer a DTensor: with `partition`'s placements, or replicated if it sets none.
COHORT_API void distribute_module(torch::nn::Module& module, const DeviceMesh& mesh, const PartitionFn& partition = {},
                                  std::optional<int> src_rank = 0);

}  // namespace cohort

// Old names, until the next release.
namespace cohort {
using dtensor::distribute_parameter;
using dtensor::distribute_parameters;
}  // namespace cohort
