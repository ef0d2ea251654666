/// Finds how much memory this process may still use: the free memory of the host, and the limits of its cgroups. The kernel kills
/// a process that uses more, so this is checked before.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cohort/base/error/result.h"

namespace cohort::snapshot {

struct FreeMemory {
  uint64_t num_bytes = 0;
  /// The source of the limit: "the host", `the cgroup "/job" (memory.max)`.
  std::string limited_by;
};

/// Returns the free memory. `mount` is the folder where cgroups are mounted, `membership` the text of /proc/self/cgroup,
/// `meminfo` the text of /proc/meminfo. File pages that the kernel would drop count as free. Returns nothing if none of them
/// tells. Pure, except that it reads below `mount`.
std::optional<FreeMemory> free_memory(const std::string& mount, const std::string& membership,
                                      const std::string& meminfo);

/// Returns an error, which names the source of the limit, if less than `num_bytes` are free.
base::Result<void> check_free_memory(uint64_t num_bytes);

}  // namespace cohort::snapshot
