/// MemorySharer: added to c10d's Backend by backends whose ranks share memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "cohort/shm/memory/common_memory.h"

namespace cohort::comm {

class MemorySharer {
 public:
  virtual ~MemorySharer() = default;
  /// Collective. See shm_empty.h.
  virtual at::Tensor make_shared_tensor(c10::IntArrayRef sizes, const at::TensorOptions& options) = 0;
  /// Not collective. See shm_empty.h.
  virtual bool shares_tensors() const = 0;
  /// See common_memory.h.
  virtual shm::CommonMemory make_common_memory(size_t num_bytes, bool has_pages) = 0;
  virtual std::vector<shm::SharedMemoryPtr> arenas() = 0;
};

}  // namespace cohort::comm
