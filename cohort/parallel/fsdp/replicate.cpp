#include "cohort/parallel/fsdp/replicate.h"

#include <c10/util/Exception.h>

#include "cohort/parallel/fsdp/tensors/mesh_groups.h"

namespace cohort::fsdp {

std::string device_type_of(const torch::nn::Module& module) {
  for (const auto& parameter : module.parameters()) {
    if (!parameter.is_meta()) return c10::DeviceTypeName(parameter.device().type(), /*lower_case=*/true);
  }
  return "cpu";
}

DeviceMesh replica_mesh(const Options& options, const std::string& device_type) {
  const DeviceMesh::AxisNames names = {"dp_replicate", "dp_shard"};
  if (options.dp_mesh_dims) {
    TORCH_CHECK_VALUE(options.mesh, "mesh must have mesh_dim_names when dp_mesh_dims is provided");
    TORCH_CHECK_VALUE(options.dp_mesh_dims->shard.empty(),
                      "replicate() with dp_mesh_dims requires replicate-only dims (no shard dims). Use fully_shard() "
                      "for sharding.");
    return data_parallel_mesh(*options.mesh, *options.dp_mesh_dims);
  }
  if (!options.mesh && !options.process_group) return init_device_mesh(device_type, {get_world_size(), 1}, names);
  const auto named = [](const Group& group, const std::string& type) {
    return DeviceMesh::from_group(group, type, {"replicate"});
  };
  auto line = options.mesh ? *options.mesh : named(options.process_group, device_type);
  TORCH_CHECK_VALUE(line.ndim() == 1, "replicate expects a 1D DeviceMesh but got ", line.to_string());
  if (line.axis_names().empty()) line = named(line.group(), line.device_type());
  return line.unflatten(0, {line.size(), 1}, names);
}

}  // namespace cohort::fsdp
