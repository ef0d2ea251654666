/// Functional collectives: they do not change their input, and return new tensors, which autograd follows.
///
/// Names and semantics of torch/distributed/_functional_collectives.py. Their results are still in flight: pass them to
/// wait_tensor before reading them. (With a gather_dim other than 0 they wait by themselves.)
///
///     auto sum = cohort::functional::wait_tensor(cohort::functional::all_reduce(tensor, cohort::ReduceOp::SUM));
///
/// Gradients: the transposed collective; reductions have one only for ReduceOp::SUM. Higher derivatives work too. `group`: if
/// null, the default group. Throws: c10::ValueError for wrong arguments and on ranks outside the group; wait_tensor throws
/// c10::DistBackendError if the operation failed. Thread-safety: as in collectives.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/export.h"

namespace cohort::functional {

/// Blocks until `tensor`, returned by one of the functions below, is ready (on CUDA: orders the current stream after it).
/// Returns: `tensor`. Returns any other tensor at once.
COHORT_API at::Tensor wait_tensor(const at::Tensor& tensor);

/// `src` is a rank in the group, as in PyTorch. Not differentiable, as in PyTorch: see functional.h in this folder.
COHORT_API at::Tensor broadcast(const at::Tensor& tensor, int src, const Group& group = {});
COHORT_API at::Tensor all_reduce(const at::Tensor& tensor, const ReduceOp& op, const Group& group = {});
/// Concatenates every rank's `tensor` along `gather_dim`.
COHORT_API at::Tensor all_gather_single(const at::Tensor& tensor, int64_t gather_dim, const Group& group = {});
/// Returns this rank's shard, along `scatter_dim`, of the reduction of every rank's `tensor`.
COHORT_API at::Tensor reduce_scatter_single(const at::Tensor& tensor, const ReduceOp& op, int64_t scatter_dim,
                                            const Group& group = {});

/// Split sizes are rows of dimension 0 per rank: give both or neither (equal parts).
COHORT_API at::Tensor all_to_all_single(const at::Tensor& tensor,
                                        const std::optional<std::vector<int64_t>>& output_split_sizes,
                                        const std::optional<std::vector<int64_t>>& input_split_sizes,
                                        const Group& group = {});
/// Sends rank m's one-dimensional `tensor` to rank src_dst[m]. Returns an empty tensor if nothing comes.
COHORT_API at::Tensor permute_tensor(const at::Tensor& tensor, const std::vector<int64_t>& src_dst,
                                     const Group& group = {});

/// Process many tensors in one call of the backend.
COHORT_API TensorList all_reduce_coalesced(const TensorList& tensors, const ReduceOp& op, const Group& group = {});
COHORT_API TensorList all_gather_single_coalesced(const TensorList& tensors, const Group& group = {});
/// `scatter_dims` has one number per tensor.
COHORT_API TensorList reduce_scatter_single_coalesced(const TensorList& tensors, const ReduceOp& op,
                                                      const std::vector<int64_t>& scatter_dims,
                                                      const Group& group = {});

/// Names of PyTorch before 2.13, and names from the time when the plain functions had no gradient.
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
