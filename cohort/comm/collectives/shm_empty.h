/// Tensors in memory that all ranks of a group map. If all tensors of an operation of backend "shm" are in such memory, it moves
/// each byte once instead of twice.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>

#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"

namespace cohort::comm {

/// Collective: every rank of `group` (if null, the default group) must call this, with sizes and dtype of the same number of
/// bytes. Returns: a CPU tensor of `sizes`, zeroed, of `options.dtype()`; each rank has its own. Its memory outlives the group.
/// Throws c10::ValueError on a group without backend "shm" and if a rank has no memory left; c10::DistBackendError if a
/// rank does not come.
COHORT_API at::Tensor shm_empty(at::IntArrayRef sizes, const at::TensorOptions& options = {}, const Group& group = {});

/// Whether shm_empty works on `group`. The same on all of its ranks.
COHORT_API bool has_shared_memory(const Group& group = {});

/// Whether every rank of `group` has the shared allocator (comm/memory/shared_allocator.h) and the others can map it: then
/// operations on ordinary CPU tensors from it move each byte once, too. The same on all of its ranks.
COHORT_API bool shares_tensors(const Group& group = {});

/// Returns the bytes of shm_empty's tensors that this process holds. Thread-safety: any thread.
COHORT_API size_t shm_memory_allocated();

}  // namespace cohort::comm
