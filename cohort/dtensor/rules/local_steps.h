/// What rules do between running an operation on the parts and its result.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <string>
#include <vector>

#include "cohort/dtensor/dispatch/rule.h"

namespace cohort::dtensor {

/// Runs it with the sizes that argument `index` has of a whole result made those of this rank's part of it.
void run_with_local_sizes(Call& call, const Plan& plan, size_t index);
/// Whether an axis cuts operand `operand`, as planned, along one of the dims that are flagged.
bool crosses(const Plan& plan, size_t operand, const std::vector<bool>& dims);
/// Collective: `tensor` reduced over the axes that do.
at::Tensor reduced_over_cuts(const Call& call, const Plan& plan, size_t operand, const std::vector<bool>& dims,
                             const std::string& reduce_op, at::Tensor tensor);
/// As LibTorch calculates sums: in float32 at least.
at::Tensor widened(const at::Tensor& tensor);
/// Which of the things that indices mean this rank has, and where: dim `dim` of operand `operand`, as planned.
struct OwnIndices {
  at::Tensor indices;  ///< counted in this rank's part; 0 where it does not have them
  at::Tensor is_here;  ///< a flag for each
};
OwnIndices own_indices(const Call& call, const Plan& plan, size_t operand, int64_t dim, const at::Tensor& indices);
/// One of `ndim` flags.
std::vector<bool> only_dim(int64_t dim, int64_t ndim);
/// The flagged ones by number.
std::vector<int64_t> dims_of(const std::vector<bool>& flags);
/// The largest or the smallest number of a dtype.
at::Scalar extreme_of(at::ScalarType dtype, bool is_max);

}  // namespace cohort::dtensor
