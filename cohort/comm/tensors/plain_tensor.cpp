#include "cohort/comm/tensors/plain_tensor.h"

#include <ATen/ATen.h>

namespace cohort::comm {

bool is_lazy(const at::Tensor& tensor) { return tensor.is_conj() || tensor.is_neg(); }

bool is_plain(const at::Tensor& tensor) { return tensor.is_contiguous() && !is_lazy(tensor); }

at::Tensor plain_copy(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  return at::empty(tensor.sizes(), tensor.options().memory_format(at::MemoryFormat::Contiguous)).copy_(tensor);
}

at::Tensor as_plain(const at::Tensor& tensor) { return is_plain(tensor) ? tensor : plain_copy(tensor); }

at::Tensor as_bytes(const at::Tensor& plain) {
  const at::NoGradGuard no_grad;
  // Not view(): a contiguous tensor with at most one element may have any strides.
  return plain.as_strided({plain.numel()}, {1}).view(at::kByte);
}

bool starts_like(const at::Tensor& one, const at::Tensor& other) {
  return one.const_data_ptr() == other.const_data_ptr() && one.is_conj() == other.is_conj() &&
         one.is_neg() == other.is_neg();
}

}  // namespace cohort::comm
