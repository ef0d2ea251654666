/// What an array in a file is: the type of its elements, its shape, and how its bytes lie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace cohort::files {

/// The element types that array files share with LibTorch.
enum class DType {
  kBool,
  kUInt8,
  kInt8,
  kUInt16,
  kInt16,
  kUInt32,
  kInt32,
  kUInt64,
  kInt64,
  kFloat16,
  kFloat32,
  kFloat64,
  kComplex64,
  kComplex128
};

/// In bytes.
size_t element_size(DType dtype);
/// NumPy's name, such as "float32".
std::string_view name_of(DType dtype);

struct ArrayLayout {
  DType dtype = DType::kUInt8;
  std::vector<int64_t> shape = {};
  /// Where its first byte lies in the file, and how many there are.
  uint64_t offset = 0;
  uint64_t num_bytes = 0;
  /// The first index is the one that changes fastest (Fortran's order), not the last one.
  bool is_fortran = false;
  bool is_big_endian = false;
};

/// Nothing if a length is negative, or the array has 2^63 bytes or more.
std::optional<uint64_t> num_bytes_of(DType dtype, std::span<const int64_t> shape);

/// Makes elements what this (little-endian) machine computes with: turns the bytes of each number round if they are
/// big-endian, and any bool that is not 0 into 1. `bytes` are whole elements.
void to_native(std::span<char> bytes, DType dtype, bool is_big_endian);

/// Copies an array in Fortran's order into C's order. Both have layout.num_bytes bytes and do not overlap.
void fortran_to_c(const ArrayLayout& layout, const char* from, char* to);

}  // namespace cohort::files
