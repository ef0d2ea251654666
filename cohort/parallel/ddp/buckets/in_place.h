/// Reduces gradients where autograd has put them, without a copy into a bucket and without a bucket's memory.
///
/// This saves a third of the traffic between core and memory if the group's operations work on such tensors as they lie: on ranks
/// of one host with the shared allocator (comm/memory/shared_allocator.h). Elsewhere operations copy what they move, so one copy
/// of many gradients into a flat tensor is better.
///
/// The reduction divides such gradients (PREMUL_SUM), with the rounding of a multiplication before the sum: float32 and float64
/// gradients have the same bits as without this.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

#include "cohort/export.h"
#include "cohort/parallel/ddp/buckets/bucket_plan.h"
#include "cohort/parallel/ddp/settings/options.h"

namespace cohort::ddp {

/// Returns a flag per parameter, the same on all ranks: whether its gradients are reduced in place. Returns an empty list for
/// options that need buckets or round otherwise. Requires that no communication hook wants buckets.
std::vector<char> find_in_place(const std::vector<at::Tensor>& parameters, const std::vector<ParameterInfo>& infos,
                                const ReducerOptions& options);

/// Whether an operation may write to `gradient`: its memory is its own, and its elements lie in the order of `layout`, which all
/// ranks share. Otherwise a copy must be reduced. May differ from rank to rank.
COHORT_TEST_API bool can_be_reduced_in_place(const at::Tensor& gradient, const at::Tensor& layout);

/// Returns a tensor without memory, with the dtype, sizes and strides of a parameter without gaps.
COHORT_TEST_API at::Tensor layout_of(const at::Tensor& parameter);

/// Returns the elements of a tensor without gaps as one row, in the order of memory.
at::Tensor in_order_of_memory(const at::Tensor& tensor);

/// Gradients of fewer bytes go into buckets. For tests; the default is the shared allocator's own default, 64 KiB.
COHORT_TEST_API void set_least_bytes_in_place(size_t num_bytes);

}  // namespace cohort::ddp
