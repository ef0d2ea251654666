/// Which CPUs there are and what they share: cores, caches, NUMA nodes, sockets.
#pragma once

#include <string>
#include <vector>

#include "cohort/base/error/result.h"

namespace cohort::base {

/// A logical CPU. Numbers are the kernel's; `core` and `cache` are the lowest CPU that shares the physical core or the
/// last-level cache.
struct Cpu {
  int id = 0;
  int core = 0;
  int cache = 0;
  int numa_node = 0;
  int socket = 0;
  bool operator==(const Cpu&) const = default;
};

/// "0-3,8" as {0, 1, 2, 3, 8}. An error for anything else, and for more than a million CPUs.
Result<std::vector<int>> parse_cpu_list(const std::string& text);

/// The CPUs this process may run on, in ascending order.
std::vector<int> allowed_cpus();

/// The given CPUs as `folder` describes them; what it does not say is 0, or the CPU itself.
std::vector<Cpu> read_cpus(const std::vector<int>& ids, const std::string& folder = "/sys/devices/system");

/// The NUMA node of each NVIDIA GPU in the order of their bus addresses, which CUDA_DEVICE_ORDER=PCI_BUS_ID uses; -1 where it
/// is not known.
std::vector<int> gpu_numa_nodes(const std::string& driver = "/proc/driver/nvidia/gpus",
                                const std::string& devices = "/sys/bus/pci/devices");

}  // namespace cohort::base
