/// Plain tensors: those whose memory is their content.
///
/// A view may say that its memory is to be read with another sign: LibTorch's conj() and imag() set a bit and copy nothing.
/// Whoever takes the address of a tensor that it has not made asks here first.
#pragma once

#include <ATen/core/Tensor.h>

namespace cohort::comm {

/// Lazily conjugated or negated: the content is the memory with other signs.
bool is_lazy(const at::Tensor& tensor);
/// Contiguous and not lazy.
bool is_plain(const at::Tensor& tensor);
/// A plain copy.
at::Tensor plain_copy(const at::Tensor& tensor);
/// The tensor itself if it is plain, else a plain copy. No gradient flows through a copy.
at::Tensor as_plain(const at::Tensor& tensor);
/// A plain tensor viewed as one dimension of bytes.
at::Tensor as_bytes(const at::Tensor& plain);
/// True if the two begin at one address and read its signs alike. Sizes and strides are not compared.
bool starts_like(const at::Tensor& one, const at::Tensor& other);

}  // namespace cohort::comm
