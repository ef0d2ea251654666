/// ContiguousCopies: contiguous tensors that an engine gets instead of tensors that it cannot move as they are.
///
/// Engines move contiguous memory. A tensor that is not contiguous is copied in before the operation and out after it. A plain
/// tensor is passed as it is.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

#include "cohort/comm/tensors/plain_tensor.h"

namespace cohort::comm {

/// Not thread-safe. copy_back() may run in a thread of its own, once the operation has completed.
class ContiguousCopies {
 public:
  /// Returns what the engine reads: the content of `tensor`.
  at::Tensor sent(const at::Tensor& tensor) const;
  /// Returns what the engine writes, with undefined content; copy_back() copies it to `tensor`. `apart`: must not be the tensor's
  /// own memory, see overlap.h.
  at::Tensor received(const at::Tensor& tensor, bool apart = false);
  /// Returns what the engine both reads and writes.
  at::Tensor exchanged(const at::Tensor& tensor);

  std::vector<at::Tensor> sent(const std::vector<at::Tensor>& tensors) const;
  std::vector<at::Tensor> received(const std::vector<at::Tensor>& tensors, bool apart = false);
  std::vector<at::Tensor> exchanged(const std::vector<at::Tensor>& tensors);

  /// Makes copy_back() copy `copy` to `tensor`. `copy` has the same dtype and number of elements, or is the tensor's bytes. As
  /// bytes, any strides and alignment work.
  void copy_back_later(const at::Tensor& tensor, const at::Tensor& copy) { copies_.emplace_back(tensor, copy); }
  bool has_copies() const { return !copies_.empty(); }
  void copy_back() const;

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> copies_;
};

/// Packs the contents of `tensors`, of any dtypes, one after the other as bytes.
at::Tensor pack(const std::vector<at::Tensor>& tensors);

}  // namespace cohort::comm
