/// Checks for the usual arguments of an operation: one tensor, or a tensor and its parts, one per rank, that need no contiguous
/// copy, no list and no further check.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <cstddef>
#include <type_traits>

namespace cohort::comm {

/// Whether the tensor is plain and on the CPU.
bool is_simple(const at::Tensor& tensor);
/// Whether both are plain CPU tensors of one dtype, `whole` has `world_size` times the elements of `part`, and their memory does
/// not overlap.
bool is_simple_pair(const at::Tensor& whole, const at::Tensor& part, int world_size);

/// The begins of the equal parts of a plain tensor.
template <class Pointer>
class EqualParts {
 public:
  EqualParts(Pointer memory, size_t part_bytes, int world_size) {
    using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<Pointer>>, const std::byte, std::byte>;
    auto* const begin = static_cast<Byte*>(memory);
    for (size_t i = 0; i < static_cast<size_t>(world_size); ++i) pointers_.push_back(begin + i * part_bytes);
  }
  const Pointer* data() const { return pointers_.data(); }

 private:
  c10::SmallVector<Pointer, 8> pointers_;
};

}  // namespace cohort::comm
