/// NumPy's .npy: a header, which is a Python dictionary as text, and the elements of one array.
///
/// Reads versions 1, 2 and 3 of the format, C and Fortran order, and both byte orders (described in numpy/lib/_format_impl.py).
/// Refuses arrays of Python objects, which are pickles, structured types, texts and dates: runs no code of a file.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "cohort/base/error/result.h"
#include "cohort/extras/files/arrays/array_data.h"

namespace cohort::files {

/// The longest header that is read. NumPy reads at most 10000 bytes by default.
inline constexpr uint64_t kMaxNpyHeader = uint64_t{64} << 10;

/// Returns the layout of the array. `head` has at least the header of a file of `size` bytes. Fails unless the elements fill
/// exactly the bytes after the header.
base::Result<ArrayLayout> read_npy_layout(const RandomAccessFile& head, uint64_t size);
inline base::Result<ArrayLayout> read_npy_layout(const RandomAccessFile& file) {
  return read_npy_layout(file, file.size());
}

base::Result<ArrayData> read_npy(const std::string& path);

/// Writes version 1, in C order and little-endian, as np.save does. `bytes` are the elements. The file appears complete or not at
/// all, readable by its owner (AtomicFile).
base::Result<void> write_npy(const std::string& path, DType dtype, std::span<const int64_t> shape,
                             std::span<const char> bytes);

}  // namespace cohort::files
