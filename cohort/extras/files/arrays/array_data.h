/// ArrayData: an array in memory, in C order and in this machine's byte order.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/extras/files/arrays/array_layout.h"
#include "cohort/files/input/random_access_file.h"

namespace cohort::files {

struct ArrayData {
  DType dtype = DType::kUInt8;
  std::vector<int64_t> shape = {};
  /// Aligned for every element type.
  std::unique_ptr<char[]> bytes = nullptr;
  uint64_t num_bytes = 0;

  std::span<const char> span() const { return {bytes.get(), num_bytes}; }
};

/// Reads whole elements of an array that is in C order, from its byte `begin` on, in this machine's byte order.
base::Result<void> read_elements(const RandomAccessFile& file, const ArrayLayout& layout, uint64_t begin,
                                 std::span<char> to);

/// Reads the whole array. Requires that the layout was compared with the size of the file, as memory is allocated for it.
base::Result<ArrayData> read_array(const RandomAccessFile& file, const ArrayLayout& layout);

/// Makes an array from bytes in the given layout, and consumes them.
ArrayData take_array(const ArrayLayout& layout, std::unique_ptr<char[]> bytes);

}  // namespace cohort::files
