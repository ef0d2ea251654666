/// replicate: data parallelism with the machinery of fully_shard, its options and its settings.
///
/// As torch/distributed/_composable/replicate_with_fsdp.py. Thread-safety: as fully_shard.
#pragma once

#include <string>
#include <type_traits>
#include <utility>

#include "cohort/parallel/fsdp/fully_shard.h"

namespace cohort {
namespace fsdp {

/// Returns the two-dimensional mesh (number of ranks, 1) on which each rank of options.mesh, or of its group, has all parameters.
/// With options.dp_mesh_dims, which must name no axis to shard along (else c10::ValueError), of the ranks along its axes.
/// `device_type`: of a mesh that is made here.
COHORT_API DeviceMesh replica_mesh(const Options& options, const std::string& device_type = "cpu");
/// The device type of a module's first parameter that is on a device.
COHORT_API std::string device_type_of(const torch::nn::Module& module);

}  // namespace fsdp

/// As PyTorch's replicate. Each rank has all parameters, and gradients are averaged. `options.mesh`: one-dimensional, or with
/// options.dp_mesh_dims. Collective.
template <class Net>
auto replicate(Net&& net, fsdp::Options options = {}) {
  if constexpr (std::is_base_of_v<torch::nn::Module, std::remove_cvref_t<Net>>) {
    options.mesh = fsdp::replica_mesh(options, fsdp::device_type_of(net));
  } else {
    options.mesh = fsdp::replica_mesh(options, fsdp::device_type_of(*net));
  }
  options.process_group = {};
  options.dp_mesh_dims = {};
  return FullySharded(std::forward<Net>(net), options);
}

}  // namespace cohort
