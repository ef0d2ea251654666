/// Maps other ranks' arenas when they join a group.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "cohort/base/error/result.h"
#include "cohort/shm/memory/shared_memory.h"

namespace cohort::shm {

/// The data with which other processes of this user find a process's arena. If it has no arena, all are zero except `fd`.
struct ArenaAddress {
  int32_t fd = -1;
  uint64_t num_bytes = 0;
  uint64_t device = 0;
  uint64_t inode = 0;
};

/// Returns the address of process_arena().
ArenaAddress address_of_process_arena();

/// Maps the arena of process `pid`: this process's own, or through /proc/<pid>/fd, which the kernel allows for processes of the
/// same user. Fails if the file does not match `address`.
base::Result<SharedMemoryPtr> map_arena(pid_t pid, const ArenaAddress& address);

}  // namespace cohort::shm
