/// Where the contents of a bucket live.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"

namespace cohort::ddp {

/// Flat, for all elements of these parameters: in memory that all ranks of the host map, where the group has it, which saves the
/// copies to and from the staging area. Of `dtype`, or the parameters'. Collective.
at::Tensor make_bucket_memory(const std::vector<at::Tensor>& parameters, const std::vector<size_t>& indices,
                              const Group& group, std::optional<at::ScalarType> dtype);

/// The parameter's gradient in a flat tensor, beginning at element `offset`. Made by set_() and not by narrow(): to autograd it
/// is an ordinary tensor, so zero_grad (both modes), accumulation and `grad = {}` work as without DDP. Layout follows autograd's
/// gradient layout contract: a dense parameter's strides, else row-major.
at::Tensor alias_of(const at::Tensor& flat, int64_t offset, const at::Tensor& parameter);

/// What a rank without data gives to the reduction of these parameters' gradients.
COHORT_TEST_API at::Tensor zeros_of_bucket(const std::vector<at::Tensor>& parameters,
                                           const std::vector<size_t>& indices, bool is_sparse,
                                           std::optional<at::ScalarType> dtype);

}  // namespace cohort::ddp
