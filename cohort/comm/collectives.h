/// Collectives and point-to-point operations on tensors, with PyTorch's names, arguments and defaults
/// (torch/distributed/distributed_c10d.py). A null `group` is the default group.
///
/// Each returns the operation's Work. Without `async_op` it has completed (or thrown) already; with it, call wait()
/// before reading the tensors. Tensors must stay alive and untouched until then; shapes and dtypes must agree on all ranks.
/// `src` and `dst` are ranks of the default group, as in PyTorch.
///
/// Throws: c10::ValueError for arguments that can never work, c10::DistBackendError (with operation, group, rank, size and
/// cause) when a peer is lost or the time-out passes. A rank outside the group warns and gets null.
/// Thread-safety: one thread per group at a time, in the same order on every rank.
#pragma once

#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <optional>
#include <vector>

#include "cohort/comm/process_group.h"
#include "cohort/export.h"

namespace cohort {

using ReduceOp = c10d::ReduceOp;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

struct CollectiveOptions {
  Group group;
  bool async_op = false;
};

struct ReduceOptions {
  ReduceOp op = ReduceOp::SUM;
  Group group;
  bool async_op = false;
};

struct PointToPointOptions {
  Group group;
  int tag = 0;
};

/// In place: every rank's `tensor` becomes the reduction of all. ReduceOp::AVG divides after a sum where the engine lacks it.
COHORT_API WorkPtr all_reduce(const at::Tensor& tensor, const ReduceOptions& options = {});
/// In place: every rank's `tensor` becomes rank `src`'s.
COHORT_API WorkPtr broadcast(const at::Tensor& tensor, int src, const CollectiveOptions& options = {});
/// `outputs` (one per rank, preallocated) receive every rank's `input`.
COHORT_API WorkPtr all_gather(const std::vector<at::Tensor>& outputs, const at::Tensor& input,
                              const CollectiveOptions& options = {});
/// `output` (world_size times `input`'s elements) receives every rank's `input`, in rank order.
COHORT_API WorkPtr all_gather_single(const at::Tensor& output, const at::Tensor& input,
                                     const CollectiveOptions& options = {});
/// `output` receives the reduction over ranks of `inputs[rank]`.
COHORT_API WorkPtr reduce_scatter(const at::Tensor& output, const std::vector<at::Tensor>& inputs,
                                  const ReduceOptions& options = {});
/// The same with the inputs in one tensor of world_size times `output`'s elements.
COHORT_API WorkPtr reduce_scatter_single(const at::Tensor& output, const at::Tensor& input,
                                         const ReduceOptions& options = {});
/// Names of PyTorch before 2.13.
COHORT_API WorkPtr all_gather_into_tensor(const at::Tensor& output, const at::Tensor& input,
                                          const CollectiveOptions& options = {});
COHORT_API WorkPtr reduce_scatter_tensor(const at::Tensor& output, const at::Tensor& input,
                                         const ReduceOptions& options = {});

/// Blocks until `dst` has taken the tensor. Throws c10::ValueError when `dst` is this rank.
COHORT_API void send(const at::Tensor& tensor, int dst, const PointToPointOptions& options = {});
/// Blocks until a tensor has come from `src` (any rank if absent). Returns: the sender's rank in the default group.
COHORT_API int recv(const at::Tensor& tensor, std::optional<int> src = std::nullopt,
                    const PointToPointOptions& options = {});
COHORT_API WorkPtr isend(const at::Tensor& tensor, int dst, const PointToPointOptions& options = {});
COHORT_API WorkPtr irecv(const at::Tensor& tensor, std::optional<int> src = std::nullopt,
                         const PointToPointOptions& options = {});

/// Blocks until every rank of the group has come.
COHORT_API WorkPtr barrier(const CollectiveOptions& options = {});

}  // namespace cohort
