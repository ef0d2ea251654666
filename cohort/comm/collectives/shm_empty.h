/// Tensors in memory that all ranks of a group map: operations of the backend "shm" whose tensors all lie there move each byte
/// once instead of twice.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>

#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"

namespace cohort::comm {

/// Collective: every rank of `group` (null: the default group) must call this with sizes and dtype of the same number of bytes.
/// Returns: a CPU tensor of `sizes`, zeroed, of `options.dtype()`; each rank has its own. Its memory outlives the group.
/// Throws c10::ValueError on a group without backend "shm" and when a rank has no memory left; c10::DistBackendError when a
/// rank does not come.
COHORT_API at::Tensor shm_empty(at::IntArrayRef sizes, const at::TensorOptions& options = {}, const Group& group = {});

/// True if shm_empty works on `group`. The same on all of its ranks.
COHORT_API bool has_shared_memory(const Group& group = {});

/// True if every rank of `group` has the shared allocator (comm/memory/shared_allocator.h) and the others can map it: operations
/// on ordinary CPU tensors in it move each byte once, too. The same on all of its ranks.
COHORT_API bool shares_tensors(const Group& group = {});

/// Bytes of shm_empty's tensors that this process holds. Any thread.
COHORT_API size_t shm_memory_allocated();

}  // namespace cohort::comm
