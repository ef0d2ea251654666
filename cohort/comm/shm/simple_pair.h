/// The usual arguments of an operation, one tensor, or a tensor and its parts, one per rank: nothing about them needs a stand-in,
/// a list or a further check.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <cstddef>
#include <type_traits>

namespace cohort::comm {

/// True if it is plain, and on the CPU.
bool is_simple(const at::Tensor& tensor);
/// True if both are plain CPU tensors of one dtype, `whole` has `world_size` times the elements of `part`, and they lie apart.
bool is_simple_pair(const at::Tensor& whole, const at::Tensor& part, int world_size);

/// Where the equal parts of a plain tensor begin.
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
