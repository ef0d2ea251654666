/// IDX: the file format of MNIST and similar datasets: four bytes (0, 0, type of elements, number of dimensions), the lengths as
/// big-endian 32-bit numbers, then the elements, big-endian and in C order, up to the end of the file.
///
/// Files are small, so they are read into memory when they are opened. They may be packed with gzip (.gz), whatever their name
/// is.
#pragma once

#include <string>

#include "cohort/base/error/result.h"
#include "cohort/extras/files/arrays/array_data.h"

namespace cohort::files {

/// Reads all types: 0x08 uint8, 0x09 int8, 0x0B int16, 0x0C int32, 0x0D float32, 0x0E float64. Fails unless the file has exactly
/// the bytes that its header says; allocates no memory for lengths that it cannot have.
base::Result<ArrayData> read_idx(const std::string& path);
base::Result<ArrayData> read_idx(const RandomAccessFile& file);

}  // namespace cohort::files
