/// Steps of rules before and after they run an operation on local tensors.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <string>
#include <vector>

#include "cohort/dtensor/dispatch/rule.h"

namespace cohort::dtensor {

/// Runs the operation with argument `index`, the sizes of a full result, replaced by the sizes of this rank's shard.
void run_with_local_sizes(Call& call, const Plan& plan, size_t index);
/// Whether the plan shards operand `operand` along one of the flagged dims.
bool crosses(const Plan& plan, size_t operand, const std::vector<bool>& dims);
/// Reduces `tensor` over the axes that shard the operand along these dims. Collective.
at::Tensor reduced_over_shards(const Call& call, const Plan& plan, size_t operand, const std::vector<bool>& dims,
                               const std::string& reduce_op, at::Tensor tensor);
/// Returns the tensor in the dtype in which LibTorch computes sums: at least float32.
at::Tensor widened(const at::Tensor& tensor);
/// This rank's share of indices along dim `dim` of operand `operand`, as planned.
struct OwnIndices {
  at::Tensor indices;  ///< indices within this rank's shard; 0 for those that other ranks have
  at::Tensor is_here;  ///< a flag for each index: whether this rank has it
};
OwnIndices own_indices(const Call& call, const Plan& plan, size_t operand, int64_t dim, const at::Tensor& indices);
/// Returns `ndim` flags of which only `dim` is true.
std::vector<bool> only_dim(int64_t dim, int64_t ndim);
/// Returns the numbers of the flagged dims.
std::vector<int64_t> dims_of(const std::vector<bool>& flags);
/// Returns the largest or the smallest number of a dtype.
at::Scalar extreme_of(at::ScalarType dtype, bool is_max);

}  // namespace cohort::dtensor
