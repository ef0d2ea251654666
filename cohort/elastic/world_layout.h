/// How many ranks a job has and where they run: the numbers behind --nnodes and --nproc-per-node.
#pragma once

#include <optional>
#include <string>

#include "cohort/base/result.h"

namespace cohort::elastic {

/// A static job: every node runs the same number of ranks, numbered node by node.
struct WorldLayout {
  int num_nodes = 1;
  int node_rank = 0;
  int local_world_size = 1;
  int world_size() const { return num_nodes * local_world_size; }
  int rank(int local_rank) const { return node_rank * local_world_size + local_rank; }
};

/// What this host offers to `auto`, `cpu` and `gpu`.
struct HostDevices {
  int num_cores = 1;
  int num_gpus = 0;
};
HostDevices find_host_devices();

/// GPUs a CUDA program would see: /dev/nvidia0, 1, ... in `device_folder`, restricted by CUDA_VISIBLE_DEVICES if set.
int count_gpus(const std::string& device_folder, const std::optional<std::string>& visible_devices);

/// "2" or "2:2"; a range such as "1:4" is an error, as ranks that come and go are not supported yet.
base::Result<int> parse_num_nodes(const std::string& text);

/// A number >= 1, or `cpu` (cores), `gpu` (GPUs), `auto` (GPUs if there are any, else cores).
base::Result<int> parse_local_world_size(const std::string& text, const HostDevices& devices);

}  // namespace cohort::elastic
