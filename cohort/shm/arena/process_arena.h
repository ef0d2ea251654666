/// The arena of this process: the source of its tensors' memory, which other ranks map.
#pragma once

#include <cstddef>

#include "cohort/base/error/result.h"
#include "cohort/shm/arena/arena.h"

namespace cohort::shm {

/// Makes process_arena() with `reserved_bytes` of address space (0 means the size of the host's memory, at most 256 GiB), unless
/// there is one already. Thread-safe.
base::Result<Arena*> make_process_arena(size_t reserved_bytes = 0);

/// Returns the arena; null if none was made since this process was forked. Costs one atomic load.
Arena* process_arena();

/// Returns the arena that contains `memory`: process_arena(), or one from before a fork; null if there is none. Thread-safe.
Arena* arena_of(const void* memory);

}  // namespace cohort::shm
