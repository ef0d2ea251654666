/// Differentiable collectives: they return new tensors, and backward runs the transposed collective.
///
/// Names, arguments and gradients of torch/distributed/nn/functional.py. All block. Backward is also collective: every rank must
/// run it, so every rank's loss must depend on the result.
///
/// `group`: if null, the default group. Throws c10::ValueError for wrong arguments and on ranks outside the group,
/// c10::DistBackendError if an exchange fails. Thread-safety: as in comm/collectives/collectives.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/export.h"

namespace cohort::nn::functional {

/// Returns rank `src`'s tensor. Gradient: on `src` the sum of all ranks' gradients, elsewhere zero.
COHORT_API at::Tensor broadcast(const at::Tensor& tensor, RankArgument src, const Group& group = {});
/// Returns every rank's tensor on rank `dst`, elsewhere zeros. Gradient: `dst`'s gradient of this rank's tensor.
COHORT_API TensorList gather(const at::Tensor& tensor, RankArgument dst = 0, const Group& group = {});
/// Returns this rank's entry of rank `src`'s `tensors`. The other ranks pass tensors of the same shape, whose values do not
/// matter.
COHORT_API at::Tensor scatter(const TensorList& tensors, RankArgument src = 0, const Group& group = {});
/// Returns the reduction on rank `dst`, elsewhere undefined values. Gradient: `dst`'s, whatever `op` is, as in PyTorch.
COHORT_API at::Tensor reduce(const at::Tensor& tensor, RankArgument dst, const ReduceOp& op = ReduceOp::SUM,
                             const Group& group = {});
/// Writes `output`, if it is contiguous, and returns it. Gradient: every rank's, whatever `op` is, as in PyTorch.
COHORT_API at::Tensor reduce_scatter(const at::Tensor& output, const TensorList& inputs,
                                     const ReduceOp& op = ReduceOp::SUM, const Group& group = {});
/// Returns every rank's tensor. Gradient: the sum over ranks of their gradients of this rank's tensor.
COHORT_API TensorList all_gather(const at::Tensor& tensor, const Group& group = {});
/// The same in one tensor, which is written and returned.
COHORT_API at::Tensor _all_gather_base(const at::Tensor& output, const at::Tensor& input, const Group& group = {});
/// Writes `outputs` (one per rank) and returns them. With Gloo tensors must have one shape, as in PyTorch; otherwise use
/// all_to_all_single.
COHORT_API TensorList all_to_all(const TensorList& outputs, const TensorList& inputs, const Group& group = {});
COHORT_API at::Tensor all_to_all_single(const at::Tensor& output, const at::Tensor& input,
                                        const std::vector<int64_t>& output_split_sizes = {},
                                        const std::vector<int64_t>& input_split_sizes = {}, const Group& group = {});
/// Gradient: all_reduce with the same `op`, as in PyTorch.
COHORT_API at::Tensor all_reduce(const at::Tensor& tensor, const ReduceOp& op = ReduceOp::SUM, const Group& group = {});

}  // namespace cohort::nn::functional
