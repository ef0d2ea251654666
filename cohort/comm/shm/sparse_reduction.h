/// All-reduce of sparse (COO) tensors: every rank gathers all entries and sums entries with the same index.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "cohort/shm/engine/group.h"

namespace cohort::comm {

/// Throws c10::ValueError for reductions other than SUM and AVG, and for tensors that are not sparse CPU tensors.
void check_sparse_reduction(const char* operation, const at::Tensor& tensor, c10d::ReduceOp::RedOpType op);

/// Collective. `input` is coalesced; `output`, which may be the tensor from which `input` was made, becomes the coalesced sum.
/// Throws c10::ValueError, on every rank, if the ranks' sizes differ.
shm::Outcome sum_sparse(shm::Group& group, const shm::CallOptions& options, const at::Tensor& input, at::Tensor output,
                        bool is_average);

}  // namespace cohort::comm
