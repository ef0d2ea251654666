/// How ranks map each other's arenas when they join a group.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "cohort/base/error/result.h"
#include "cohort/shm/memory/shared_memory.h"

namespace cohort::shm {

/// What other processes of this user find a process's arena by. All zero but for `fd`: it has none.
struct ArenaAddress {
  int32_t fd = -1;
  uint64_t num_bytes = 0;
  uint64_t device = 0;
  uint64_t inode = 0;
};

/// Of process_arena().
ArenaAddress address_of_process_arena();

/// Maps the arena of process `pid`: this process's own, or through /proc/<pid>/fd, which the kernel allows processes of the
/// same user. Fails where that is not what `address` says.
base::Result<SharedMemoryPtr> map_arena(pid_t pid, const ArenaAddress& address);

}  // namespace cohort::shm
