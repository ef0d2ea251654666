/// Memory that the ranks of a group have once, and their arenas, for strategies that work in them without copies.
#pragma once

#include <cstddef>
#include <vector>

#include "cohort/comm/group/process_group.h"
#include "cohort/shm/memory/common_memory.h"

namespace cohort::comm {

/// Collective: the same arguments on all ranks of `group`, which has_shared_memory(). See shm::Group::allocate_common.
/// Throws c10::ValueError, on every rank, when one has too little memory; c10::DistBackendError when one does not come.
shm::CommonMemory make_common_memory(size_t num_bytes, bool has_pages, const Group& group);

/// Every rank's arena, by rank; none unless shares_tensors(group).
std::vector<shm::SharedMemoryPtr> arenas_of(const Group& group);

}  // namespace cohort::comm
