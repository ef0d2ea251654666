/// What all ranks must agree on before they wrap a module: parameter shapes, starting values.
/// Collective throughout. The bytes on the wire are PyTorch's, so C++ and Python ranks may share a job.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"

namespace cohort::parallel {

/// Throws c10::Error on every rank that differs from rank 0 in number, sizes or strides of its parameters.
COHORT_TEST_API void verify_same_parameters(const Group& group, const std::vector<at::Tensor>& parameters);

/// Every rank's tensors become those of `source`, a rank of the group, in pieces of at most 250 MiB.
void broadcast_from(const Group& group, const std::vector<at::Tensor>& tensors, int source);
inline void broadcast_from_first(const Group& group, const std::vector<at::Tensor>& tensors) {
  broadcast_from(group, tensors, /*source=*/0);
}

}  // namespace cohort::parallel
