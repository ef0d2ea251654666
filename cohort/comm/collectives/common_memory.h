/// Memory that the ranks of a group share, and the ranks' arenas, for strategies that work in them without copies.
#pragma once

#include <cstddef>
#include <vector>

#include "cohort/comm/group/process_group.h"
#include "cohort/shm/memory/common_memory.h"

namespace cohort::comm {

/// Collective: the same arguments on all ranks of `group`, for which has_shared_memory() must be true. See
/// shm::Group::allocate_common. Throws c10::ValueError, on every rank, if a rank has too little memory; c10::DistBackendError
/// if a rank does not come.
shm::CommonMemory make_common_memory(size_t num_bytes, bool has_pages, const Group& group);

/// Returns every rank's arena, by rank; empty unless shares_tensors(group).
std::vector<shm::SharedMemoryPtr> arenas_of(const Group& group);

}  // namespace cohort::comm
