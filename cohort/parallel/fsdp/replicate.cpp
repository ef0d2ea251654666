#include "cohort/parallel/fsdp/replicate.h"

#include <c10/util/Exception.h>

namespace cohort::fsdp {

std::string device_type_of(const torch::nn::Module& module) {
  for (const auto& parameter : module.parameters()) {
    if (!parameter.is_meta()) return c10::DeviceTypeName(parameter.device().type(), /*lower_case=*/true);
  }
  return "cpu";
}

DeviceMesh replica_mesh(const Options& options, const std::string& device_type) {
  const DeviceMesh::AxisNames names = {"dp_replicate", "dp_shard"};
  if (!options.mesh && !options.process_group) return init_device_mesh(device_type, {get_world_size(), 1}, names);
  const auto line = options.mesh ? *options.mesh : DeviceMesh::from_group(options.process_group, device_type);
  TORCH_CHECK_VALUE(line.ndim() == 1, "replicate expects a 1D DeviceMesh but got ", line.to_string());
  return line.unflatten(0, {line.size(), 1}, names);
}

}  // namespace cohort::fsdp
