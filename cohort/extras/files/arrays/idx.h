/// IDX: the files of MNIST and its relatives. Four bytes (0, 0, type of elements, number of dimensions), the lengths as
/// big-endian 32-bit numbers, then the elements, big-endian and in C order, to the end of the file.
///
/// A file is read into memory when it is opened, as these are small; packed by gzip (.gz) they may be, too, whatever their
/// name.
#pragma once

#include <string>

#include "cohort/base/error/result.h"
#include "cohort/extras/files/arrays/array_data.h"

namespace cohort::files {

/// All types: 0x08 uint8, 0x09 int8, 0x0B int16, 0x0C int32, 0x0D float32, 0x0E float64. The file has exactly the bytes
/// that its header says, or this is an error; no memory is taken for lengths that it cannot have.
base::Result<ArrayData> read_idx(const std::string& path);
base::Result<ArrayData> read_idx(const RandomAccessFile& file);

}  // namespace cohort::files
