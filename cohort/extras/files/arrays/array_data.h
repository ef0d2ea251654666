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
  /// Aligned for every type of elements.
  std::unique_ptr<char[]> bytes = nullptr;
  uint64_t num_bytes = 0;

  std::span<const char> span() const { return {bytes.get(), num_bytes}; }
};

/// Whole elements of an array that lies in C order, from byte `begin` of it on, as this machine has them.
base::Result<void> read_elements(const RandomAccessFile& file, const ArrayLayout& layout, uint64_t begin,
                                 std::span<char> to);

/// The whole array. The file has been compared with the layout before, so that no more memory is taken than it has bytes.
base::Result<ArrayData> read_array(const RandomAccessFile& file, const ArrayLayout& layout);

/// An array from bytes that lie as the layout says, which are used up.
ArrayData take_array(const ArrayLayout& layout, std::unique_ptr<char[]> bytes);

}  // namespace cohort::files
