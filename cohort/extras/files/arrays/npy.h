/// NumPy's .npy: a header, which is a Python dictionary as text, then the elements of one array.
///
/// Versions 1, 2 and 3 of the format, C and Fortran order, both byte orders (numpy/lib/_format_impl.py has the
/// description). Arrays of Python objects are pickles and are refused, as are structured types, texts and dates: nothing in
/// a file is executed.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "cohort/base/error/result.h"
#include "cohort/extras/files/arrays/array_data.h"

namespace cohort::files {

/// The longest header that is read. NumPy itself reads none of more than 10000 bytes unless told to.
inline constexpr uint64_t kMaxNpyHeader = uint64_t{64} << 10;

/// Where the array lies. `head` has at least the header, of `size` bytes in all: its elements fill exactly what is left of
/// them, or this is an error.
base::Result<ArrayLayout> read_npy_layout(const RandomAccessFile& head, uint64_t size);
inline base::Result<ArrayLayout> read_npy_layout(const RandomAccessFile& file) {
  return read_npy_layout(file, file.size());
}

base::Result<ArrayData> read_npy(const std::string& path);

/// Writes version 1, in C order and little-endian, as np.save does. `bytes` are the elements. The file appears whole or not
/// at all, readable by its owner (AtomicFile).
base::Result<void> write_npy(const std::string& path, DType dtype, std::span<const int64_t> shape,
                             std::span<const char> bytes);

}  // namespace cohort::files
