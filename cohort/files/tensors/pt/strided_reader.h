/// Reads the elements of a view of a storage in row-major order.
#pragma once

#include <cstdint>
#include <span>

#include "cohort/base/error/result.h"
#include "cohort/files/input/random_access_file.h"
#include "cohort/files/tensors/pt/pt_file.h"

namespace cohort::files {

/// Copies bytes of the tensor's elements in row-major order, as they are in the file, from `first_byte` on until `to` is full.
/// Requires that they are inside the tensor, and the tensor inside its storage, which begins at `storage_offset` in the file.
base::Result<void> read_strided(const RandomAccessFile& file, uint64_t storage_offset, const PtTensor& tensor,
                                uint64_t first_byte, std::span<char> to);

}  // namespace cohort::files
