/// DirectCollectives: added to c10d's Backend by backends that run a synchronous call on plain tensors without c10d's lists,
/// options and Works, which take longer than a short message.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

namespace cohort::comm {

/// Each function does what the public collective of that name does (all_gather, reduce_scatter and all_to_all: the ones of single
/// tensors), in the calling thread, and throws what c10d's function and its Work's wait() throw.
/// Returns: true if it has run. False if the caller must call c10d's function instead: because a tensor is not simple (defined,
/// dense, contiguous, real and on the CPU), output and input overlap, something must be converted, a profiler is active, or
/// earlier calls have not run yet.
/// Thread-safety: as the backend.
class DirectCollectives {
 public:
  virtual ~DirectCollectives() = default;
  virtual bool all_reduce_now(const at::Tensor& tensor, const c10d::ReduceOp& op) = 0;
  virtual bool broadcast_now(const at::Tensor& tensor, int root) = 0;
  virtual bool reduce_now(const at::Tensor& tensor, const c10d::ReduceOp& op, int root) = 0;
  virtual bool all_gather_now(const at::Tensor& output, const at::Tensor& input) = 0;
  virtual bool reduce_scatter_now(const at::Tensor& output, const at::Tensor& input, const c10d::ReduceOp& op) = 0;
  /// Splits both tensors evenly.
  virtual bool all_to_all_now(const at::Tensor& output, const at::Tensor& input) = 0;
  virtual bool barrier_now() = 0;
};

}  // namespace cohort::comm
