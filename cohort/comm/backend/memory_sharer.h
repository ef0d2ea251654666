/// MemorySharer: what a backend adds to c10d's Backend whose ranks share memory.
#pragma once

#include <ATen/core/Tensor.h>

namespace cohort::comm {

class MemorySharer {
 public:
  virtual ~MemorySharer() = default;
  /// Collective. See shm_empty.h.
  virtual at::Tensor make_shared_tensor(c10::IntArrayRef sizes, const at::TensorOptions& options) = 0;
  /// Not collective. See shm_empty.h.
  virtual bool shares_tensors() const = 0;
};

}  // namespace cohort::comm
