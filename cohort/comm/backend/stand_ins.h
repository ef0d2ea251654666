/// StandIns: what an engine is given in place of tensors whose memory is not simply their content.
///
/// Engines move contiguous memory. A tensor that is not contiguous is copied in before the operation and out after it; a plain
/// one stands in for itself.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

#include "cohort/comm/backend/plain_tensor.h"

namespace cohort::comm {

/// Not thread-safe. copy_back() may run in another thread than the rest, once the operation has completed.
class StandIns {
 public:
  /// What the engine reads: the content of `tensor`.
  at::Tensor sent(const at::Tensor& tensor) const;
  /// What the engine writes, its content undefined until then; copy_back() brings it to `tensor`. `apart`: not the tensor's
  /// own memory, see overlap.h.
  at::Tensor received(const at::Tensor& tensor, bool apart = false);
  /// What the engine reads and writes.
  at::Tensor exchanged(const at::Tensor& tensor);

  std::vector<at::Tensor> sent(const std::vector<at::Tensor>& tensors) const;
  std::vector<at::Tensor> received(const std::vector<at::Tensor>& tensors, bool apart = false);
  std::vector<at::Tensor> exchanged(const std::vector<at::Tensor>& tensors);

  /// Makes `copy` the source of `tensor` in copy_back(): of the same dtype and number of elements, or its bytes. In this
  /// case any strides and alignment will do.
  void copy_back_later(const at::Tensor& tensor, const at::Tensor& copy) { copies_.emplace_back(tensor, copy); }
  bool has_copies() const { return !copies_.empty(); }
  void copy_back() const;

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> copies_;
};

/// The contents of `tensors`, of any dtypes, one after the other as bytes.
at::Tensor pack(const std::vector<at::Tensor>& tensors);

}  // namespace cohort::comm
