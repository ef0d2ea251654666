/// Makes all ranks agree before they wrap a module: on parameter shapes and initial values. All functions are collective. The
/// bytes on the wire are PyTorch's, so C++ and Python ranks may share a job.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"

namespace cohort::parallel {

/// Throws c10::Error on every rank that differs from rank 0 in number, sizes or strides of its parameters.
COHORT_TEST_API void verify_same_parameters(const Group& group, const std::vector<at::Tensor>& parameters);

/// Gives every rank the tensors of `source`, a rank of the group, in pieces of at most 250 MiB.
void broadcast_from(const Group& group, const std::vector<at::Tensor>& tensors, int source);
inline void broadcast_from_first(const Group& group, const std::vector<at::Tensor>& tensors) {
  broadcast_from(group, tensors, /*source=*/0);
}

}  // namespace cohort::parallel
