/// The numbers of a host's devices, for --nproc-per-node.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cohort/base/error/result.h"

namespace cohort::elastic {

struct HostDevices {
  int num_cores = 1;
  int num_gpus = 0;
};
HostDevices find_host_devices();

/// Checks --gpus: indices, or names such as GPU-8e1f... and MIG-..., each once.
base::Result<void> check_gpus(const std::string& list);
/// Counts the GPUs that a CUDA program would see: /dev/nvidia0, 1, ... in `device_folder`, restricted by CUDA_VISIBLE_DEVICES if
/// set.
int count_gpus(const std::string& device_folder, const std::optional<std::string>& visible_devices);

/// Parses a number >= 1, or `cpu` (cores), `gpu` (GPUs), `auto` (GPUs if there are any, else cores).
base::Result<int> parse_local_world_size(const std::string& text, const HostDevices& devices);

}  // namespace cohort::elastic
