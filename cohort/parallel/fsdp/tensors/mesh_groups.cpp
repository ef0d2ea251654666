#include "cohort/parallel/fsdp/tensors/mesh_groups.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cohort/parallel/fsdp/tensors/module_tensor.h"

namespace cohort::fsdp {
namespace {

using AxisNames = DeviceMesh::AxisNames;

// Formats as Python prints a tuple.
std::string tuple_of(const AxisNames& names) {
  return names.size() == 1 ? fmt::format("('{}',)", names.front()) : fmt::format("('{}')", fmt::join(names, "', '"));
}

void check_names(const DeviceMesh& mesh, const DataParallelMeshDims& dims) {
  TORCH_CHECK_VALUE(!dims.shard.empty() || !dims.replicate.empty(),
                    "At least one of shard or replicate must be set in DataParallelMeshDims");
  const auto& known = mesh.axis_names();
  TORCH_CHECK_VALUE(!known.empty(), "mesh must have mesh_dim_names when dp_mesh_dims is provided");
  for (const auto* const names : {&dims.shard, &dims.replicate}) {
    for (const auto& name : *names) {
      TORCH_CHECK_VALUE(std::find(known.begin(), known.end(), name) != known.end(), "Mesh dim name '", name,
                        "' not found in mesh.mesh_dim_names ", tuple_of(known));
    }
  }
}

DeviceMesh line_of(const DeviceMesh& mesh, const AxisNames& names) {
  if (names.size() == 1) return mesh[names.front()];
  return mesh.slice(names).flatten(fmt::format("{}", fmt::join(names, "_")));
}

}  // namespace

DeviceMesh data_parallel_mesh(const DeviceMesh& mesh, const DataParallelMeshDims& dims) {
  check_names(mesh, dims);
  if (dims.shard.empty()) {
    const auto line = line_of(mesh, dims.replicate);
    return line.unflatten(0, {line.size(), 1}, {"dp_replicate_of_1", "dp_shard_of_1"});
  }
  auto shards = line_of(mesh, dims.shard);
  if (dims.replicate.empty()) return shards;
  return DeviceMesh::concatenate({line_of(mesh, dims.replicate), shards});
}

MeshGroups groups_of(const DeviceMesh& mesh) {
  TORCH_CHECK_VALUE(mesh.ndim() == 1 || mesh.ndim() == 2, "fully_shard expects a 1D or 2D DeviceMesh but got ",
                    mesh.to_string());
  if (mesh.ndim() == 1) return {mesh.group(0), {}, mesh};
  TORCH_CHECK(!mesh.axis_names().empty(), "Please init the 2D mesh for HSDP with axis_names specified");
  return {mesh.group(1), mesh.group(0), mesh};
}

MeshGroups groups_of(const Options& options) {
  if (!options.mesh) {
    TORCH_CHECK_VALUE(!options.dp_mesh_dims, "mesh must have mesh_dim_names when dp_mesh_dims is provided");
    return {options.process_group ? options.process_group : default_group(), {}};
  }
  TORCH_CHECK_VALUE(!options.process_group, "[cohort] fully_shard takes a mesh or a process group, not both");
  return groups_of(options.dp_mesh_dims ? data_parallel_mesh(*options.mesh, *options.dp_mesh_dims) : *options.mesh);
}

int64_t shard_dim(const NamedParameter& parameter, int num_ranks, const Options& options) {
  if (!options.shard_placement_fn) return 0;
  const auto placement = options.shard_placement_fn(parameter.tensor).placement;
  if (!placement) return 0;
  const auto ndim = parameter.tensor.dim();
  const auto dim = placement->dim < 0 ? placement->dim + ndim : placement->dim;
  TORCH_CHECK_VALUE(0 <= dim && dim < ndim, "[cohort] shard_placement_fn returned Shard(", placement->dim,
                    ") for parameter '", parameter.name, "', which has ", ndim, " dimensions");
  TORCH_CHECK_NOT_IMPLEMENTED(dim == 0 || own_shard(parameter.tensor).size(dim) % num_ranks == 0,
                              "FSDP does not support uneven sharding on dim ", dim, ": ",
                              own_shard(parameter.tensor).sizes(), " (world size: ", num_ranks, ")");
  return dim;
}

}  // namespace cohort::fsdp
