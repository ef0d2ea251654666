/// How much memory this process may still take: what the host has left, and what its cgroups allow. Who takes more is ended by
/// the kernel without a word, so it is asked before.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cohort/base/error/result.h"

namespace cohort::vault {

struct MemoryRoom {
  uint64_t num_bytes = 0;
  /// Who sets the limit: "the host", `the cgroup "/job" (memory.max)`.
  std::string limited_by;
};

/// `mount`: where cgroups are mounted; `membership`: the text of /proc/self/cgroup; `meminfo`: of /proc/meminfo. File pages that
/// the kernel would drop count as room. Nothing where none of them tells. Pure, but for reading below `mount`.
std::optional<MemoryRoom> memory_room(const std::string& mount, const std::string& membership,
                                      const std::string& meminfo);

/// Error: there is less than `num_bytes`, with who sets the limit.
base::Result<void> check_memory_room(uint64_t num_bytes);

}  // namespace cohort::vault
