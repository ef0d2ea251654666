/// The ranks that share the parameters of a call of fully_shard, and the ranks that have the same shards, from its mesh or group.
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
  Group replicas;  ///< null if there are none
  /// The mesh of the groups; absent if only a group was given.
  std::optional<DeviceMesh> mesh = {};

  bool operator==(const MeshGroups& other) const { return shards == other.shards && replicas == other.replicas; }
};

/// The groups of a mesh of one dimension, or of two: replicas, then shards. Throws c10::ValueError for another number of
/// dimensions, and c10::Error for two dimensions without names. Local.
MeshGroups groups_of(const DeviceMesh& mesh);
/// Collective if several axes are flattened. Throws c10::ValueError for a mesh together with a group, and for names that the mesh
/// does not have.
MeshGroups groups_of(const Options& options);

/// Returns the data-parallel axes of `mesh`: one dimension, or two if replicas are asked for. Without a name to shard along, the
/// second dimension has one rank. Collective if several axes are flattened. Throws c10::ValueError for names that `mesh` does not
/// have, c10::IndexError for names in another order.
DeviceMesh data_parallel_mesh(const DeviceMesh& mesh, const DataParallelMeshDims& dims);

/// Returns the dimension along which options.shard_placement_fn shards `parameter` among `num_ranks`. Throws c10::ValueError for
/// a dimension that the parameter does not have, c10::NotImplementedError for one other than 0 that cannot be divided evenly.
int64_t shard_dim(const NamedParameter& parameter, int num_ranks, const Options& options);

}  // namespace cohort::fsdp
