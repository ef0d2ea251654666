/// A sharded parameter.
///
/// It is sharded along its dimension 0, or another one that was asked for, in chunks as torch.chunk makes them: the last ranks
/// may have shorter shards, or empty ones. `full` is the module's own tensor: it keeps its identity for autograd and the module.
/// `shard` is a leaf of its own, for optimizers.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cohort/mesh/device_mesh.h"
#include "cohort/mesh/placement.h"
#include "cohort/mesh/shard_spec.h"

namespace cohort::fsdp {

struct NamedParameter {
  std::string name;
  at::Tensor tensor;
};

/// Says of which tensor a parameter is this rank's shard, apart from data parallelism: of a DTensor, or of a weight of a
/// tensor-parallel layer (parallel_layers.h).
struct ModelShard {
  /// On a mesh without the data-parallel axes; absent if there are no other axes, and each rank has the full tensor.
  std::optional<mesh::ShardSpec> spec = {};
  /// The axes of the DTensor's own mesh that are data parallel, on which it is replicated.
  std::vector<int64_t> data_axes = {};
};

struct ShardedParameter {
  std::string name;
  at::Tensor full;
  at::Tensor shard;
  /// The place of the shard's first element in the flattened `full`, or in this rank's shard of it if it is a DTensor; 0 if `dim`
  /// is not 0.
  int64_t offset = 0;
  int64_t dim = 0;  ///< the dimension along which it is sharded
  /// Describes `shard` on the mesh that fully_shard was given, replicas' axis first, or on one of its group's ranks; if `full` is
  /// itself a shard, on that mesh and the mesh of `full` (module_tensor.h). Set by Sharding's constructor.
  std::optional<mesh::ShardSpec> spec = {};
  /// Absent if `full` is a full tensor. Set by Sharding's constructor.
  std::optional<ModelShard> model_shard = {};
};

/// Writes full parameters, in their module's dtype and with their global shape, also for tensor-parallel modules.
using Writer = std::function<void(const std::string& name, const at::Tensor& full)>;

}  // namespace cohort::fsdp
