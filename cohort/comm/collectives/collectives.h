/// Collectives on tensors, with PyTorch's names, arguments and defaults (torch/distributed/distributed_c10d.py). A null
/// `group` is the default group. Sends and receives: point_to_point.h; objects: object_collectives.h; merged calls:
/// coalescing.h.
///
/// Each returns the operation's Work. Without `async_op` the operation has completed (or thrown) already, and the Work may be a
/// placeholder. With `async_op`, call wait() before you read the tensors, and keep them alive and untouched until then. Shapes
/// and dtypes must agree on all ranks.
/// Any layout and dtype works: what an engine lacks is composed from what it has.
///
/// Throws: c10::ValueError for arguments that can never work, c10::DistBackendError (with operation, group, rank, size and
/// cause) if a peer is lost, ranks differ or the timeout passes. A rank outside of the group warns and gets null.
/// Thread-safety: one thread per group at a time, in the same order on every rank.
#pragma once

#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <chrono>
#include <optional>
#include <type_traits>
#include <vector>

#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"

namespace cohort {

/// SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR, or premul_sum(factor). Complex tensors: SUM, AVG and PREMUL_SUM only.
using ReduceOp = c10d::ReduceOp;
/// PREMUL_SUM: every rank's tensor times its factor, then summed. A tensor must have one element.
COHORT_API ReduceOp premul_sum(double factor);
COHORT_API ReduceOp premul_sum(const at::Tensor& factor);

using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using TensorList = std::vector<at::Tensor>;

struct CollectiveOptions {
  Group group = {};
  bool async_op = false;
};

struct ReduceOptions {
  ReduceOp op = ReduceOp::SUM;
  Group group = {};
  bool async_op = false;
};

struct BarrierOptions {
  Group group = {};
  bool async_op = false;
  /// NCCL: the device whose stream waits. If empty, current_device().
  std::vector<int64_t> device_ids = {};
  /// If absent, the group's timeout.
  std::optional<std::chrono::milliseconds> timeout = {};
};

struct MonitoredBarrierOptions {
  Group group = {};
  /// If absent, the group's timeout.
  std::optional<std::chrono::milliseconds> timeout = {};
  /// If true, rank 0 names every missing rank; if false, only the first.
  bool wait_all_ranks = false;
};

/// A rank as an argument. A plain number is a rank of the default group (PyTorch's `src`, `dst`); group_rank(n) is a rank of the
/// operation's group (PyTorch's `group_src`, `group_dst`).
class RankArgument {
 public:
  RankArgument(int global_rank) : value(global_rank) {}  // implicit on purpose: broadcast(tensor, 0)
  int value;
  bool in_group = false;
};

inline RankArgument group_rank(int rank) {
  RankArgument argument(rank);
  argument.in_group = true;
  return argument;
}

/// Replaces every rank's `tensor` by the reduction of all, in place. Sparse tensors: SUM only.
COHORT_API WorkPtr all_reduce(const at::Tensor& tensor, const ReduceOptions& options = {});
/// As above, for a given operation: all_reduce(tensor, ReduceOp::AVG), all_reduce(tensor, premul_sum(0.5)).
template <class Op>
requires std::is_same_v<Op, ReduceOp> || std::is_same_v<Op, ReduceOp::RedOpType>
inline WorkPtr all_reduce(const at::Tensor& tensor, const Op& op) {
  return all_reduce(tensor, ReduceOptions{.op = op});
}
/// Replaces every rank's `tensor` by rank `src`'s, in place.
COHORT_API WorkPtr broadcast(const at::Tensor& tensor, RankArgument src, const CollectiveOptions& options = {});
/// Replaces rank `dst`'s `tensor` by the reduction of all, in place. The tensors of other ranks are undefined afterwards.
COHORT_API WorkPtr reduce(const at::Tensor& tensor, RankArgument dst, const ReduceOptions& options = {});

/// Copies every rank's `input` to `outputs` (one per rank, preallocated).
COHORT_API WorkPtr all_gather(const TensorList& outputs, const at::Tensor& input,
                              const CollectiveOptions& options = {});
/// Copies every rank's `input` to `output` (world_size times `input`'s elements), in rank order.
COHORT_API WorkPtr all_gather_single(const at::Tensor& output, const at::Tensor& input,
                                     const CollectiveOptions& options = {});
/// Copies every rank's `input` to `outputs` (one per rank, preallocated) of rank `dst`; elsewhere `outputs` is empty.
COHORT_API WorkPtr gather(const at::Tensor& input, const TensorList& outputs = {}, RankArgument dst = 0,
                          const CollectiveOptions& options = {});
/// Copies to each rank's `output` its entry of rank `src`'s `inputs` (one per rank); elsewhere `inputs` is empty.
COHORT_API WorkPtr scatter(const at::Tensor& output, const TensorList& inputs = {}, RankArgument src = 0,
                           const CollectiveOptions& options = {});
/// Reduces `inputs[rank]` over all ranks to that rank's `output`.
COHORT_API WorkPtr reduce_scatter(const at::Tensor& output, const TensorList& inputs,
                                  const ReduceOptions& options = {});
/// As above, with the inputs in one tensor of world_size times `output`'s elements.
COHORT_API WorkPtr reduce_scatter_single(const at::Tensor& output, const at::Tensor& input,
                                         const ReduceOptions& options = {});
/// Copies rank r's `inputs[this rank]` to `outputs[r]`; sizes may differ between pairs of ranks.
COHORT_API WorkPtr all_to_all(const TensorList& outputs, const TensorList& inputs,
                              const CollectiveOptions& options = {});
/// As above, in single tensors split along dimension 0. Split sizes are rows per rank. If they are empty, tensors split evenly.
COHORT_API WorkPtr all_to_all_single(const at::Tensor& output, const at::Tensor& input,
                                     const std::vector<int64_t>& output_split_sizes = {},
                                     const std::vector<int64_t>& input_split_sizes = {},
                                     const CollectiveOptions& options = {});

/// Names from PyTorch before 2.13.
COHORT_API WorkPtr all_gather_into_tensor(const at::Tensor& output, const at::Tensor& input,
                                          const CollectiveOptions& options = {});
COHORT_API WorkPtr reduce_scatter_tensor(const at::Tensor& output, const at::Tensor& input,
                                         const ReduceOptions& options = {});

/// Blocks until every rank of the group has called it.
COHORT_API WorkPtr barrier(const BarrierOptions& options = {});
/// A barrier that names missing ranks. Gloo and shm only. Throws c10::DistBackendError, on rank 0 with the missing ranks.
COHORT_API void monitored_barrier(const MonitoredBarrierOptions& options = {});

}  // namespace cohort
