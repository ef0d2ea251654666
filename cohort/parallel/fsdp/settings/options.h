/// What fully_shard can be told. Names and defaults as in torch/distributed/fsdp/_fully_shard/_fully_shard.py and _fsdp_api.py.
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

/// Which dtypes a module computes and communicates in; its shards, and what optimizers see, keep their own.
struct MixedPrecisionPolicy {
  /// Of the whole parameters in forward and backward, and of the all-gather. Absent: the parameters' own.
  std::optional<c10::ScalarType> param_dtype = {};
  /// Of the reduction of gradients, and of what is added up without one. Absent: that of the gradients.
  std::optional<c10::ScalarType> reduce_dtype = {};
  /// Floating-point outputs of forward become this. Absent: they stay what they are.
  std::optional<c10::ScalarType> output_dtype = {};
  /// Floating-point inputs of forward become param_dtype.
  bool cast_forward_inputs = true;

  bool operator==(const MixedPrecisionPolicy&) const = default;
};

/// Where shards, their gradients and so optimizer states are. The default: on the device that computes.
struct OffloadPolicy {
  bool offloads_to_cpu = false;
  /// In memory that is faster to copy, and that the system cannot move to disk.
  bool pin_memory = true;
};
/// On the CPU. Useful with accelerators; where the CPU computes, it changes nothing, and a warning says so.
inline OffloadPolicy CPUOffloadPolicy(bool pin_memory = true) { return {true, pin_memory}; }

/// What becomes of whole parameters between forward and backward: true, they are let go; false, they are kept; a number, the
/// ranks share them out anew in groups of that many neighbours.
using ReshardAfterForward = std::variant<bool, int>;

/// Which axes of a mesh are data parallel, by their names; of the others, such as that of tensor parallelism, each rank has one
/// place. DTensors may lie on the whole mesh, replicated on these axes, or on the others alone. Several names are flattened into
/// one axis, in the mesh's order. At least one list must have a name.
struct DataParallelMeshDims {
  std::vector<std::string> shard = {};      ///< along these the ranks share parameters; none: each rank has all
  std::vector<std::string> replicate = {};  ///< along these are copies
};

/// How one parameter is sharded, and among whom.
struct ShardPlacementResult {
  // Implicit on purpose: what a ShardPlacementFn returns.
  ShardPlacementResult(std::nullopt_t = std::nullopt) {}
  ShardPlacementResult(Shard placement) : placement(placement) {}
  ShardPlacementResult(std::optional<Shard> placement) : placement(placement) {}
  ShardPlacementResult(std::optional<Shard> placement, DeviceMesh mesh) : placement(placement), mesh(std::move(mesh)) {}

  /// Along which dimension; absent: 0. Any other one must be divisible by the number of ranks.
  std::optional<Shard> placement = {};
  /// As Options::mesh, of one or two dimensions; absent: that one. The parameters of each mesh are a group of their own.
  std::optional<DeviceMesh> mesh = {};
};
/// The same on all ranks.
using ShardPlacementFn = std::function<ShardPlacementResult(const at::Tensor& parameter)>;

struct Options {
  /// Of one dimension: the ranks that share the parameters. Of two: the second one those, the first one the replicas of that
  /// (HSDP). Absent: those of `process_group`. With `dp_mesh_dims` of any number.
  std::optional<DeviceMesh> mesh = {};
  /// The ranks that share the parameters; null: all.
  Group process_group = {};
  /// Absent: true, but false for the root, which backward needs first.
  std::optional<ReshardAfterForward> reshard_after_forward = {};
  ShardPlacementFn shard_placement_fn = {};
  MixedPrecisionPolicy mp_policy = {};
  OffloadPolicy offload_policy = {};
  /// Parameters that stay whole on every rank, and whose gradients are not reduced.
  std::vector<at::Tensor> ignored_params = {};
  /// The axes of `mesh` to take, which must have names.
  std::optional<DataParallelMeshDims> dp_mesh_dims = {};
  /// Where all ranks of a group share memory, the whole parameters are there once, and nothing is gathered. False: they are
  /// gathered and let go there, too, as on ranks that share none.
  bool one_memory = true;
};

}  // namespace cohort::fsdp
