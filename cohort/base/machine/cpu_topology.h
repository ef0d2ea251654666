/// The CPUs of this machine and what they share: cores, caches, NUMA nodes, sockets.
#pragma once

#include <string>
#include <vector>

#include "cohort/base/error/result.h"

namespace cohort::base {

/// A logical CPU. The numbers are the kernel's; `core` and `cache` are the lowest CPU that shares the physical core or the
/// last-level cache.
struct Cpu {
  int id = 0;
  int core = 0;
  int cache = 0;
  int numa_node = 0;
  int socket = 0;
  bool operator==(const Cpu&) const = default;
};

/// Parses "0-3,8" to {0, 1, 2, 3, 8}. Returns an error for anything else, and for more than a million CPUs.
Result<std::vector<int>> parse_cpu_list(const std::string& text);

/// The CPUs this process may run on, in ascending order.
std::vector<int> allowed_cpus();

/// Reads what `folder` says of the given CPUs. Numbers that it does not have are 0, or the CPU itself.
std::vector<Cpu> read_cpus(const std::vector<int>& ids, const std::string& folder = "/sys/devices/system");

/// The NUMA node of each NVIDIA GPU, in the order of their bus addresses (as with CUDA_DEVICE_ORDER=PCI_BUS_ID). -1 means that it
/// is not known.
std::vector<int> gpu_numa_nodes(const std::string& driver = "/proc/driver/nvidia/gpus",
                                const std::string& devices = "/sys/bus/pci/devices");

}  // namespace cohort::base
