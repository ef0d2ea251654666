/// Where the contents of a bucket live.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "cohort/comm/group/process_group.h"

namespace cohort::ddp {

/// Flat, for all elements of these parameters: in memory that all ranks of the host map, where the group has it, which saves the
/// copies to and from the staging area. Collective.
at::Tensor make_bucket_memory(const std::vector<at::Tensor>& parameters, const std::vector<size_t>& indices,
                              const Group& group);

/// What a rank without data gives to the reduction of these parameters' gradients.
at::Tensor zeros_of_bucket(const std::vector<at::Tensor>& parameters, const std::vector<size_t>& indices,
                           bool is_sparse);

}  // namespace cohort::ddp
