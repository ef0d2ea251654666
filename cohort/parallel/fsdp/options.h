/// What fully_shard can be told. Names and defaults as in torch/distributed/fsdp/_fully_shard/_fully_shard.py and _fsdp_api.py.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <functional>
#include <optional>
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

/// Along which dimension a parameter is sharded; nothing: 0. Any other one must be divisible by the number of ranks.
using ShardPlacementFn = std::function<std::optional<Shard>(const at::Tensor& parameter)>;

struct Options {
  /// Of one dimension: the ranks that share the parameters. Of two: the second one those, the first one the replicas of that
  /// (HSDP). Absent: those of `process_group`.
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
  /// Where all ranks of a group share memory, the whole parameters are there once, and nothing is gathered. False: they are
  /// gathered and let go there, too, as on ranks that share none.
  bool one_memory = true;
};

}  // namespace cohort::fsdp
