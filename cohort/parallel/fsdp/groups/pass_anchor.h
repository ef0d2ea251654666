/// Lets a group follow backward, through the tensors that go into a forward pass and those that come out.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "cohort/export.h"

namespace cohort::fsdp {

/// Returns the same values, to be used instead of `inputs`, all of which require a gradient. Calls `done` when backward has
/// computed all the gradients of them that it will compute, but before it passes them on to the functions that made them. As
/// RegisterPostBackwardFunction of torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py.
COHORT_TEST_API std::vector<at::Tensor> anchor_inputs(const std::vector<at::Tensor>& inputs,
                                                      std::function<void()> done);

/// Calls `begin` as soon as backward has the gradient of one of `outputs`, once for each. Skips outputs without gradient.
void hook_outputs(const std::vector<at::Tensor>& outputs, const std::function<void()>& begin);

}  // namespace cohort::fsdp
