/// Plain tensors: tensors whose memory is their content.
///
/// A view may require its memory to be read with another sign: LibTorch's conj() and imag() set a bit and copy nothing.
/// Code that takes the address of a tensor that it has not made must check this first.
#pragma once

#include <ATen/core/Tensor.h>

namespace cohort::comm {

/// Whether the tensor is lazily conjugated or negated: its content is the memory with other signs.
bool is_lazy(const at::Tensor& tensor);
/// Whether the tensor is contiguous and not lazy.
bool is_plain(const at::Tensor& tensor);
/// Returns a plain copy.
at::Tensor plain_copy(const at::Tensor& tensor);
/// Returns the tensor itself if it is plain, otherwise a plain copy. No gradient flows through a copy.
at::Tensor as_plain(const at::Tensor& tensor);
/// Returns a plain tensor viewed as one dimension of bytes.
at::Tensor as_bytes(const at::Tensor& plain);
/// Whether both begin at one address and read its signs alike. Does not compare sizes and strides.
bool starts_like(const at::Tensor& one, const at::Tensor& other);

}  // namespace cohort::comm
