/// Makes the mesh of fully_shard's ranks and of the ranks of a tensor-parallel layer (parallel_layers.h), which knows only its
/// group: each rank tells the others which ranks compute the layer with it.
#pragma once

#include <string>

#include "cohort/mesh/device_mesh.h"
#include "cohort/parallel/fsdp/tensors/mesh_groups.h"
#include "cohort/parallel/fsdp/tensors/sharded_parameter.h"

namespace cohort::fsdp {

/// Slices of one mesh, whose axes are ranks in the order of their groups.
struct CombinedMesh {
  DeviceMesh data;   ///< of fully_shard: shards, or replicas and shards
  DeviceMesh model;  ///< of the layer
};
/// Collective over the ranks of `data`. Throws c10::NotImplementedError if the job was started in a way that does not know the
/// groups.
CombinedMesh combined_mesh(const Group& layer, const MeshGroups& data, const std::string& device_type);

/// Throws c10::ValueError for a layer's shard whose ranks are among those of `data`: they have other shards. Local.
void check_can_be_combined(const NamedParameter& parameter, const MeshGroups& data);

}  // namespace cohort::fsdp
