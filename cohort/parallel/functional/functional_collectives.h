/// Functional collectives: they leave their input alone and return new tensors, which autograd follows.
///
/// Names and semantics of torch/distributed/_functional_collectives.py. What they return is still in flight: give it to
/// wait_tensor before reading it. (A gather_dim other than 0 waits by itself.)
///
///     auto sum = cohort::functional::wait_tensor(cohort::functional::all_reduce(tensor, cohort::ReduceOp::SUM));
///
/// Gradients: the transposed collective; of reductions for ReduceOp::SUM only. Higher derivatives work as well.
/// Null `group` is the default group. Throws: c10::ValueError for wrong arguments and on ranks outside the group;
/// wait_tensor throws c10::DistBackendError when the operation failed. Thread-safety: as in collectives.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/export.h"

namespace cohort::functional {

/// Blocks until `tensor`, returned by one of the functions below, is ready (on CUDA: orders the current stream after it).
/// Returns: `tensor`. Any other tensor is returned at once.
COHORT_API at::Tensor wait_tensor(const at::Tensor& tensor);

/// `src` is a rank in the group, as in PyTorch. Not differentiable, as in PyTorch: see functional.h beside this.
COHORT_API at::Tensor broadcast(const at::Tensor& tensor, int src, const Group& group = {});
COHORT_API at::Tensor all_reduce(const at::Tensor& tensor, const ReduceOp& op, const Group& group = {});
/// Every rank's `tensor` behind each other along `gather_dim`.
COHORT_API at::Tensor all_gather_single(const at::Tensor& tensor, int64_t gather_dim, const Group& group = {});
/// This rank's part, along `scatter_dim`, of the reduction of every rank's `tensor`.
COHORT_API at::Tensor reduce_scatter_single(const at::Tensor& tensor, const ReduceOp& op, int64_t scatter_dim,
                                            const Group& group = {});

/// Rows of dimension 0 per rank: both splits or neither (equal parts).
COHORT_API at::Tensor all_to_all_single(const at::Tensor& tensor,
                                        const std::optional<std::vector<int64_t>>& output_split_sizes,
                                        const std::optional<std::vector<int64_t>>& input_split_sizes,
                                        const Group& group = {});
/// Rank m's one-dimensional `tensor` goes to rank src_dst[m]; empty where nothing comes.
COHORT_API at::Tensor permute_tensor(const at::Tensor& tensor, const std::vector<int64_t>& src_dst,
                                     const Group& group = {});

/// Many tensors in one call of the engine.
COHORT_API TensorList all_reduce_coalesced(const TensorList& tensors, const ReduceOp& op, const Group& group = {});
COHORT_API TensorList all_gather_single_coalesced(const TensorList& tensors, const Group& group = {});
/// `scatter_dims` has one number per tensor.
COHORT_API TensorList reduce_scatter_single_coalesced(const TensorList& tensors, const ReduceOp& op,
                                                      const std::vector<int64_t>& scatter_dims,
                                                      const Group& group = {});

/// Names of PyTorch before 2.13, and those from when the plain ones had no gradient.
COHORT_API at::Tensor all_gather_tensor(const at::Tensor& tensor, int64_t gather_dim, const Group& group = {});
COHORT_API at::Tensor reduce_scatter_tensor(const at::Tensor& tensor, const ReduceOp& op, int64_t scatter_dim,
                                            const Group& group = {});
COHORT_API TensorList all_gather_into_tensor_coalesced(const TensorList& tensors, const Group& group = {});
COHORT_API TensorList reduce_scatter_tensor_coalesced(const TensorList& tensors, const ReduceOp& op,
                                                      const std::vector<int64_t>& scatter_dims,
                                                      const Group& group = {});
COHORT_API at::Tensor all_gather_single_autograd(const at::Tensor& tensor, int64_t gather_dim, const Group& group = {});
COHORT_API at::Tensor reduce_scatter_single_autograd(const at::Tensor& tensor, const ReduceOp& op, int64_t scatter_dim,
                                                     const Group& group = {});
COHORT_API at::Tensor all_to_all_single_autograd(const at::Tensor& tensor,
                                                 const std::optional<std::vector<int64_t>>& output_split_sizes,
                                                 const std::optional<std::vector<int64_t>>& input_split_sizes,
                                                 const Group& group = {});

}  // namespace cohort::functional
