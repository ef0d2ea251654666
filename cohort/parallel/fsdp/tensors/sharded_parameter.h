/// What there is to know of a sharded parameter.
///
/// It is sharded along its dimension 0, or another one that was asked for, in chunks as torch.chunk makes them: the last ranks
/// may have shorter shards, or empty ones. `full` is the module's own tensor: it keeps its identity, and stays what autograd
/// and the module know. `shard` is a leaf of its own, for optimizers.
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

/// Of what a parameter is this rank's part, apart from data parallelism: a DTensor, or a weight of a layer that ranks compute
/// together (parallel_layers.h).
struct ModelPart {
  /// On a mesh without the data-parallel axes; nothing: there are no others, and it is whole on each.
  std::optional<ShardSpec> spec = {};
  /// Those of the DTensor's own mesh that are data parallel, on which it is replicated.
  std::vector<int64_t> data_axes = {};
};

struct ShardedParameter {
  std::string name;
  at::Tensor full;
  at::Tensor shard;
  /// Of the shard's first element in the flattened `full`, or in this rank's part of it if it is a DTensor; 0 where `dim` is not.
  int64_t offset = 0;
  int64_t dim = 0;  ///< along which it is sharded
  /// `shard` as a part of a tensor on the mesh that fully_shard was given, replicas' axis first, or on one of its group's ranks;
  /// where `full` is a part itself, on that mesh and the part's (module_tensor.h). Set by Sharding's constructor.
  std::optional<ShardSpec> spec = {};
  /// Nothing: `full` is whole. Set by Sharding's constructor.
  std::optional<ModelPart> part = {};
};

/// A write to whole parameters, in their module's dtype and shape, those of all ranks' parts where modules have parts.
using Writer = std::function<void(const std::string& name, const at::Tensor& full)>;

}  // namespace cohort::fsdp
