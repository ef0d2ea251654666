#include "cohort/extras/files/arrays/array_layout.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace cohort::files {
namespace {

// Elements are loaded and stored without swapping bytes, as on this machine.
static_assert(std::endian::native == std::endian::little);

void reverse_each(std::span<char> bytes, size_t size) {
  for (size_t begin = 0; begin + size <= bytes.size(); begin += size) {
    std::reverse(bytes.begin() + static_cast<ptrdiff_t>(begin), bytes.begin() + static_cast<ptrdiff_t>(begin + size));
  }
}

}  // namespace

size_t element_size(DType dtype) {
  switch (dtype) {
    case DType::kBool:
    case DType::kUInt8:
    case DType::kInt8:
      return 1;
    case DType::kUInt16:
    case DType::kInt16:
    case DType::kFloat16:
      return 2;
    case DType::kUInt32:
    case DType::kInt32:
    case DType::kFloat32:
      return 4;
    case DType::kUInt64:
    case DType::kInt64:
    case DType::kFloat64:
    case DType::kComplex64:
      return 8;
    case DType::kComplex128:
      return 16;
  }
  return 1;
}

std::string_view name_of(DType dtype) {
  constexpr std::string_view kNames[] = {"bool",   "uint8", "int8",    "uint16",  "int16",   "uint32",    "int32",
                                         "uint64", "int64", "float16", "float32", "float64", "complex64", "complex128"};
  return kNames[static_cast<size_t>(dtype)];
}

std::optional<uint64_t> num_bytes_of(DType dtype, std::span<const int64_t> shape) {
  uint64_t num_bytes = element_size(dtype);
  uint64_t without_zeros = num_bytes;  // LibTorch multiplies lengths in any order, so none of the products may overflow
  for (const int64_t length : shape) {
    if (length < 0) return std::nullopt;
    num_bytes *= static_cast<uint64_t>(length);
    if (length == 0) continue;
    if (without_zeros > uint64_t{INT64_MAX} / static_cast<uint64_t>(length)) return std::nullopt;
    without_zeros *= static_cast<uint64_t>(length);
  }
  return num_bytes;
}

void to_native(std::span<char> bytes, DType dtype, bool is_big_endian) {
  const bool is_complex = dtype == DType::kComplex64 || dtype == DType::kComplex128;
  const size_t size = is_complex ? element_size(dtype) / 2 : element_size(dtype);
  if (is_big_endian && size > 1) reverse_each(bytes, size);
  if (dtype != DType::kBool) return;
  for (char& byte : bytes) byte = byte != 0 ? 1 : 0;
}

void fortran_to_c(const ArrayLayout& layout, const char* from, char* to) {
  const size_t size = element_size(layout.dtype);
  const size_t num_dims = layout.shape.size();
  std::vector<uint64_t> strides(num_dims);  // of `from`, in bytes
  uint64_t stride = size;
  for (size_t dim = 0; dim < num_dims; ++dim) {
    strides[dim] = stride;
    stride *= static_cast<uint64_t>(layout.shape[dim]);
  }
  std::vector<int64_t> index(num_dims, 0);
  uint64_t at = 0;
  for (uint64_t done = 0; done < layout.num_bytes; done += size) {
    std::memcpy(to + done, from + at, size);
    for (size_t dim = num_dims; dim-- > 0;) {
      at += strides[dim];
      if (++index[dim] < layout.shape[dim]) break;
      at -= strides[dim] * static_cast<uint64_t>(layout.shape[dim]);
      index[dim] = 0;
    }
  }
}

}  // namespace cohort::files
