/// The memory of a bucket's contents.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"

namespace cohort::ddp {

/// Returns a flat tensor for all elements of these parameters. If the group has memory that all ranks of the host map, the tensor
/// lies there, which saves the copies to and from the staging area. `dtype`: if absent, the parameters' dtype. Collective.
at::Tensor make_bucket_memory(const std::vector<at::Tensor>& parameters, const std::vector<size_t>& indices,
                              const Group& group, std::optional<at::ScalarType> dtype);

/// Returns the parameter's gradient in a flat tensor, beginning at element `offset`. It is made with set_(), not narrow(): to
/// autograd it is an ordinary tensor, so zero_grad (both modes), accumulation and `grad = {}` work as without DDP. Its layout
/// follows autograd's gradient layout contract: the parameter's strides if it is dense, else row-major.
at::Tensor alias_of(const at::Tensor& flat, int64_t offset, const at::Tensor& parameter);

/// Returns what a rank without data contributes to the reduction of these parameters' gradients.
COHORT_TEST_API at::Tensor zeros_of_bucket(const std::vector<at::Tensor>& parameters,
                                           const std::vector<size_t>& indices, bool is_sparse,
                                           std::optional<at::ScalarType> dtype);

}  // namespace cohort::ddp
