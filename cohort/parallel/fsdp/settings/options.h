/// Options of fully_shard. Names and defaults as in torch/distributed/fsdp/_fully_shard/_fully_shard.py and _fsdp_api.py.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cohort/comm/group/process_group.h"
#include "cohort/mesh/device_mesh.h"
#include "cohort/mesh/placement.h"

namespace cohort::fsdp {

/// The dtypes in which a module computes and communicates; shards, and so what optimizers see, keep their own.
struct MixedPrecisionPolicy {
  /// Dtype of the full parameters in forward and backward, and of the all-gather. If absent, the parameters' own.
  std::optional<c10::ScalarType> param_dtype = {};
  /// Dtype of the reduction of gradients, and of accumulated gradients. If absent, that of the gradients.
  std::optional<c10::ScalarType> reduce_dtype = {};
  /// Dtype to which floating-point outputs of forward are converted. If absent, they stay as they are.
  std::optional<c10::ScalarType> output_dtype = {};
  /// Converts floating-point inputs of forward to param_dtype.
  bool cast_forward_inputs = true;

  bool operator==(const MixedPrecisionPolicy&) const = default;
};

/// Where shards, their gradients and so optimizer states are. By default on the device that computes.
struct OffloadPolicy {
  bool offloads_to_cpu = false;
  /// Uses pinned memory, which is faster to copy and cannot be swapped out.
  bool pin_memory = true;
};
/// Keeps shards on the CPU. Useful with accelerators; if the CPU computes, it changes nothing, and a warning says so.
inline OffloadPolicy CPUOffloadPolicy(bool pin_memory = true) { return {true, pin_memory}; }

/// The treatment of full parameters between forward and backward: true frees them; false keeps them; a number shards them among
/// groups of that many neighboring ranks.
using ReshardAfterForward = std::variant<bool, int>;

/// Names of the axes of a mesh that are data parallel; along the other axes, such as that of tensor parallelism, each rank has
/// one position. DTensors may lie on the whole mesh, replicated on these axes, or on the other axes alone. Several names are
/// flattened into one axis, in the mesh's order. At least one list must have a name.
struct DataParallelMeshDims {
  std::vector<std::string> shard = {};      ///< axes along which parameters are sharded; if empty, each rank has all
  std::vector<std::string> replicate = {};  ///< axes along which there are replicas
};

/// How one parameter is sharded, and among which ranks.
struct ShardPlacementResult {
  // Implicit on purpose: a ShardPlacementFn returns it.
  ShardPlacementResult(std::nullopt_t = std::nullopt) {}
  ShardPlacementResult(Shard placement) : placement(placement) {}
  ShardPlacementResult(std::optional<Shard> placement) : placement(placement) {}
  ShardPlacementResult(std::optional<Shard> placement, DeviceMesh mesh) : placement(placement), mesh(std::move(mesh)) {}

  /// The dimension to shard along; if absent, 0. Any other dimension must be divisible by the number of ranks.
  std::optional<Shard> placement = {};
  /// As Options::mesh, of one or two dimensions; if absent, that mesh. The parameters of each mesh are a group of their own.
  std::optional<DeviceMesh> mesh = {};
};
/// Must return the same on all ranks.
using ShardPlacementFn = std::function<ShardPlacementResult(const at::Tensor& parameter)>;

struct Options {
  /// One dimension: the ranks that share the parameters. Two dimensions: the ranks along the second share the parameters, and the
  /// ranks along the first are replicas (HSDP). Any number with `dp_mesh_dims`. If absent, the ranks of `process_group` share
  /// them.
  std::optional<DeviceMesh> mesh = {};
  /// The ranks that share the parameters; if null, all ranks.
  Group process_group = {};
  /// If absent, true, but false for the root, which backward needs first.
  std::optional<ReshardAfterForward> reshard_after_forward = {};
  ShardPlacementFn shard_placement_fn = {};
  MixedPrecisionPolicy mp_policy = {};
  OffloadPolicy offload_policy = {};
  /// Parameters that stay full on every rank, and whose gradients are not reduced.
  std::vector<at::Tensor> ignored_params = {};
  /// The axes of `mesh` to use, which must have names.
  std::optional<DataParallelMeshDims> dp_mesh_dims = {};
  /// If all ranks of a group share memory, the full parameters exist once, and nothing is gathered. If false, they are gathered
  /// and freed there too, as on ranks that share no memory.
  bool one_memory = true;
};

}  // namespace cohort::fsdp
