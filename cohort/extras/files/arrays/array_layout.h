/// The layout of an array in a file: the type of its elements, its shape, and the order of its bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace cohort::files {

/// The element types that array files and LibTorch have.
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

/// Returns the size in bytes.
size_t element_size(DType dtype);
/// Returns NumPy's name, such as "float32".
std::string_view name_of(DType dtype);

struct ArrayLayout {
  DType dtype = DType::kUInt8;
  std::vector<int64_t> shape = {};
  /// The offset of its first byte in the file, and its number of bytes.
  uint64_t offset = 0;
  uint64_t num_bytes = 0;
  /// The first index changes fastest (Fortran order), not the last one.
  bool is_fortran = false;
  bool is_big_endian = false;
};

/// Returns the size in bytes; absent if a length is negative, or the array has 2^63 bytes or more.
std::optional<uint64_t> num_bytes_of(DType dtype, std::span<const int64_t> shape);

/// Converts elements to this (little-endian) machine's form: swaps the bytes of big-endian numbers, and sets every bool that is
/// not 0 to 1. `bytes` are whole elements.
void to_native(std::span<char> bytes, DType dtype, bool is_big_endian);

/// Copies an array from Fortran order to C order. Both have layout.num_bytes bytes and do not overlap.
void fortran_to_c(const ArrayLayout& layout, const char* from, char* to);

}  // namespace cohort::files
