/// Collectives on tensors, with PyTorch's names, arguments and defaults (torch/distributed/distributed_c10d.py). A null
/// `group` is the default group. Sends and receives: point_to_point.h; objects: object_collectives.h; merged calls:
/// coalescing.h.
///
/// Each returns the operation's Work. Without `async_op` it has completed (or thrown) already, and may be one that knows
/// nothing of the operation; with it, call wait() before reading the tensors. Tensors must stay alive and untouched until
/// then; shapes and dtypes must agree on all ranks.
/// Any layout and dtype: what an engine lacks is composed from what it has.
///
/// Throws: c10::ValueError for arguments that can never work, c10::DistBackendError (with operation, group, rank, size and
/// cause) when a peer is lost, ranks differ or the time-out passes. A rank outside the group warns and gets null.
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
  /// NCCL: the device whose stream waits; empty: current_device().
  std::vector<int64_t> device_ids = {};
  /// Instead of the group's.
  std::optional<std::chrono::milliseconds> timeout = {};
};

struct MonitoredBarrierOptions {
  Group group = {};
  /// Default: the group's.
  std::optional<std::chrono::milliseconds> timeout = {};
  /// Rank 0 names every missing rank instead of the first.
  bool wait_all_ranks = false;
};

/// A rank as an argument: a number is a rank of the default group (PyTorch's `src`, `dst`), group_rank(n) one of the
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

/// In place: every rank's `tensor` becomes the reduction of all. Sparse tensors: SUM only.
COHORT_API WorkPtr all_reduce(const at::Tensor& tensor, const ReduceOptions& options = {});
/// The same by one operation: all_reduce(tensor, ReduceOp::AVG), all_reduce(tensor, premul_sum(0.5)).
template <class Op>
requires std::is_same_v<Op, ReduceOp> || std::is_same_v<Op, ReduceOp::RedOpType>
inline WorkPtr all_reduce(const at::Tensor& tensor, const Op& op) {
  return all_reduce(tensor, ReduceOptions{.op = op});
}
/// In place: every rank's `tensor` becomes rank `src`'s.
COHORT_API WorkPtr broadcast(const at::Tensor& tensor, RankArgument src, const CollectiveOptions& options = {});
/// In place on rank `dst`: its `tensor` becomes the reduction of all. The others' is undefined afterwards.
COHORT_API WorkPtr reduce(const at::Tensor& tensor, RankArgument dst, const ReduceOptions& options = {});

/// `outputs` (one per rank, preallocated) receive every rank's `input`.
COHORT_API WorkPtr all_gather(const TensorList& outputs, const at::Tensor& input,
                              const CollectiveOptions& options = {});
/// `output` (world_size times `input`'s elements) receives every rank's `input`, in rank order.
COHORT_API WorkPtr all_gather_single(const at::Tensor& output, const at::Tensor& input,
                                     const CollectiveOptions& options = {});
/// On rank `dst`, `outputs` (one per rank, preallocated) receive every rank's `input`; elsewhere `outputs` is empty.
COHORT_API WorkPtr gather(const at::Tensor& input, const TensorList& outputs = {}, RankArgument dst = 0,
                          const CollectiveOptions& options = {});
/// Each rank's `output` receives its entry of rank `src`'s `inputs` (one per rank); elsewhere `inputs` is empty.
COHORT_API WorkPtr scatter(const at::Tensor& output, const TensorList& inputs = {}, RankArgument src = 0,
                           const CollectiveOptions& options = {});
/// `output` receives the reduction over ranks of `inputs[rank]`.
COHORT_API WorkPtr reduce_scatter(const at::Tensor& output, const TensorList& inputs,
                                  const ReduceOptions& options = {});
/// The same with the inputs in one tensor of world_size times `output`'s elements.
COHORT_API WorkPtr reduce_scatter_single(const at::Tensor& output, const at::Tensor& input,
                                         const ReduceOptions& options = {});
/// `outputs[r]` receives rank r's `inputs[this rank]`; sizes may differ between pairs of ranks.
COHORT_API WorkPtr all_to_all(const TensorList& outputs, const TensorList& inputs,
                              const CollectiveOptions& options = {});
/// The same in single tensors cut along dimension 0. Splits are rows per rank; empty: equal parts.
COHORT_API WorkPtr all_to_all_single(const at::Tensor& output, const at::Tensor& input,
                                     const std::vector<int64_t>& output_split_sizes = {},
                                     const std::vector<int64_t>& input_split_sizes = {},
                                     const CollectiveOptions& options = {});

/// Names of PyTorch before 2.13.
COHORT_API WorkPtr all_gather_into_tensor(const at::Tensor& output, const at::Tensor& input,
                                          const CollectiveOptions& options = {});
COHORT_API WorkPtr reduce_scatter_tensor(const at::Tensor& output, const at::Tensor& input,
                                         const ReduceOptions& options = {});

/// Blocks until every rank of the group has come.
COHORT_API WorkPtr barrier(const BarrierOptions& options = {});
/// A barrier that says who is missing. Gloo and shm only. Throws c10::DistBackendError, on rank 0 with the missing ranks.
COHORT_API void monitored_barrier(const MonitoredBarrierOptions& options = {});

}  // namespace cohort
