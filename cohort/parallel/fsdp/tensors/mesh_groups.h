/// Which ranks share the parameters of a call of fully_shard, and which have the same shards: from its mesh, or its group.
/// As _validate_mesh and _get_mesh_info of torch/distributed/fsdp/_fully_shard/_fsdp_init.py.
#pragma once

#include <cstdint>
#include <optional>

#include "cohort/comm/group/process_group.h"
#include "cohort/mesh/device_mesh.h"
#include "cohort/parallel/fsdp/settings/options.h"
#include "cohort/parallel/fsdp/tensors/sharded_parameter.h"

namespace cohort::fsdp {

struct MeshGroups {
  Group shards;
  Group replicas;  ///< null: there are none
  /// What they are the groups of; nothing: only a group was given.
  std::optional<DeviceMesh> mesh = {};

  bool operator==(const MeshGroups& other) const { return shards == other.shards && replicas == other.replicas; }
};

/// Of a mesh of one dimension, or of two: replicas, then shards. Throws c10::ValueError for another number, and c10::Error for
/// two dimensions without names. Local.
MeshGroups groups_of(const DeviceMesh& mesh);
/// Collective where several axes are flattened. Throws c10::ValueError for a mesh and a group at once, and for names that the
/// mesh does not have.
MeshGroups groups_of(const Options& options);

/// The data-parallel axes of `mesh`: of one dimension, or of two where copies are asked for. Without a name to shard along, the
/// second dimension has one rank. Collective where several are flattened. Throws c10::ValueError for names that `mesh` does not
/// have, c10::IndexError for those in another order.
DeviceMesh data_parallel_mesh(const DeviceMesh& mesh, const DataParallelMeshDims& dims);

/// The dimension along which options.shard_placement_fn has `parameter` cut among `num_ranks`. Throws c10::ValueError for one
/// that it does not have, c10::NotImplementedError for one that cannot be cut evenly, unless it is 0.
int64_t shard_dim(const NamedParameter& parameter, int num_ranks, const Options& options);

}  // namespace cohort::fsdp
