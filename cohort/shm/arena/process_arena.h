/// The arena of this process: where the blocks of its tensors come from, and what other ranks map.
#pragma once

#include <cstddef>

#include "cohort/base/error/result.h"
#include "cohort/shm/arena/arena.h"

namespace cohort::shm {

/// Makes process_arena() of `reserved_bytes` of address space (0: as much as the host has memory, at most 256 GiB), unless there
/// is one already. Thread-safe.
base::Result<Arena*> make_process_arena(size_t reserved_bytes = 0);

/// Null: none was made, or not since this process was forked. One atomic load.
Arena* process_arena();

/// The arena that `memory` lies in: process_arena(), or one from before a fork; null: in none. Thread-safe.
Arena* arena_of(const void* memory);

}  // namespace cohort::shm
