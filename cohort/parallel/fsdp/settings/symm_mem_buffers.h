/// SymmMemBuffers: buffers for collectives, in memory that the ranks of a group know of each other, so that collectives work
/// where they lie: PyTorch's symmetric memory. On the CPU what backend "shm" maps; on accelerators what the backend allocates
/// itself, as NCCL does.
///
/// Thread-safety: one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <map>
#include <vector>

#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"

namespace cohort::fsdp {

class COHORT_API SymmMemBuffers {
 public:
  /// Throws c10::Error where the group's backend has no such memory for `device`. The same on all of its ranks.
  SymmMemBuffers(Group group, c10::Device device);

  /// Of one dimension, its content undefined. On the CPU the memory is kept, and used again for the same number of bytes as soon
  /// as nobody has a tensor in it. Collective where a number comes for the first time. If all that there is of it is in use, the
  /// tensor is an ordinary one.
  at::Tensor allocate(int64_t num_elements, const at::TensorOptions& options);

 private:
  const Group group_;
  const bool is_ordinary_;  ///< all tensors of this process lie in such memory
  std::map<int64_t, std::vector<at::Tensor>> by_size_;
};

}  // namespace cohort::fsdp
