/// How a group learns where backward is: from the tensors that go into a forward pass, and from those that come out.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "cohort/export.h"

namespace cohort::fsdp {

/// The same values, to be used instead of `inputs`, all of which require a gradient. Calls `done` when backward has found the
/// gradients of all of them that it will find, but before it gives them to what has made them. As RegisterPostBackwardFunction
/// of torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py.
COHORT_TEST_API std::vector<at::Tensor> anchor_inputs(const std::vector<at::Tensor>& inputs,
                                                      std::function<void()> done);

/// Calls `begin` as soon as backward has the gradient of one of `outputs`, once for each. Those without one are passed over.
void hook_outputs(const std::vector<at::Tensor>& outputs, const std::function<void()>& begin);

}  // namespace cohort::fsdp
