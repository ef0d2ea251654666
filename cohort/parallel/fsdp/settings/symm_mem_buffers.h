/// SymmMemBuffers: buffers for collectives in memory that the ranks of a group know of each other, so that collectives work in
/// place: PyTorch's symmetric memory. On the CPU it is memory that backend "shm" maps; on accelerators the backend allocates it,
/// as NCCL does.
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
  /// Throws c10::Error, on all ranks of the group alike, if the group's backend has no such memory for `device`.
  SymmMemBuffers(Group group, c10::Device device);

  /// Returns a one-dimensional, uninitialized tensor. On the CPU the memory is kept, and used again for the same number of bytes
  /// once no tensor uses it. Collective for each number of bytes that is new. If all of the memory is in use, the tensor is an
  /// ordinary one.
  at::Tensor allocate(int64_t num_elements, const at::TensorOptions& options);

 private:
  const Group group_;
  const bool is_ordinary_;  ///< whether all tensors of this process lie in such memory
  std::map<int64_t, std::vector<at::Tensor>> by_size_;
};

}  // namespace cohort::fsdp
