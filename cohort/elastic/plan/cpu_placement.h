/// The CPUs on which each worker runs: --cpu-bind and torchrun's --numa-binding (torch/numa/binding.py of PyTorch 2.13). Pure.
#pragma once

#include <string>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/base/machine/cpu_topology.h"

namespace cohort::elastic {

enum class CpuBinding {
  kNone,
  kCores,        ///< an equal share of the physical cores
  kNode,         ///< all CPUs of a NUMA node
  kSocket,       ///< all CPUs of the socket of that node
  kExclusive,    ///< an equal share of the node's cores
  kCoreComplex,  ///< the CPUs of that node that share a last-level cache
};

/// Parses --cpu-bind (none, cores or numa) and --numa-binding (node, socket, exclusive or core-complex). At most one may be
/// given.
base::Result<CpuBinding> parse_cpu_binding(const std::string& cpu_bind, const std::string& numa_binding);

/// Returns the CPUs of each worker by local rank; empty lists for kNone. Neighboring ranks get neighboring cores. A worker gets
/// the node of its GPU if `gpu_nodes` knows it; otherwise the nodes are assigned to the workers in blocks. Requires `cpus`.
std::vector<std::vector<int>> place_workers(CpuBinding binding, int num_workers, const std::vector<base::Cpu>& cpus,
                                            const std::vector<int>& gpu_nodes);

}  // namespace cohort::elastic
