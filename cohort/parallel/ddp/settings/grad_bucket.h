/// GradBucket: one bucket of gradients, as a communication hook sees it. Follows c10d::GradBucket
/// (torch/csrc/distributed/c10d/comm.hpp).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

#include "cohort/export.h"

namespace cohort::ddp {

/// Copies share the tensors, so a hook may keep one until its future completes. Thread-safety: none of its own.
class COHORT_API GradBucket {
 public:
  /// `buffer`: the gradients of `parameters` one after the other, flat; or the sparse gradient of a single parameter.
  GradBucket(size_t index, size_t num_buckets, const at::Tensor& buffer, std::vector<at::Tensor> parameters);

  /// The place in the order in which buckets are reduced, from 0.
  size_t index() const { return index_; }
  /// Whether this is the last bucket of the step.
  bool is_last() const { return index_ + 1 == num_buckets_; }
  /// The one-dimensional buffer, not divided by the number of ranks. Hooks may write into it. For complex gradients it is the
  /// real view: two numbers for each element, as in PyTorch.
  const at::Tensor& buffer() const { return buffer_; }
  /// Replaces the tensor that buffer() and gradients() show, for the hooks that are called with this object; the final result is
  /// the value of the hook's future.
  void set_buffer(at::Tensor buffer) { buffer_ = std::move(buffer); }
  /// Returns a view of buffer() for each parameter: of its sizes and row-major whatever its strides, with a last dimension of two
  /// for a complex one. Empty for a sparse gradient.
  std::vector<at::Tensor> gradients() const;
  /// In the order of gradients().
  const std::vector<at::Tensor>& parameters() const { return parameters_; }

 private:
  size_t index_;
  size_t num_buckets_;
  at::Tensor buffer_;
  std::vector<at::Tensor> parameters_;
};

}  // namespace cohort::ddp
