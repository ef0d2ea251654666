/// A safetensors file on disk: its checked header, and the place of its data. The file has 8 bytes with the length N of the
/// header, N bytes of JSON (safetensors_header.h), then the data, little-endian.
#pragma once

#include <cstdint>
#include <string>

#include "cohort/base/error/result.h"
#include "cohort/files/input/random_access_file.h"
#include "cohort/files/tensors/safetensors/safetensors_header.h"

namespace cohort::files {

struct SafetensorsFile {
  RandomAccessFile file;
  SafetensorsHeader header;
  /// The place of the data, in bytes from the start of the file.
  uint64_t data_begin = 0;
};

/// Opens a file. Errors are reasons without the path: `the file has 3 bytes, fewer than the length of a header (8)`.
base::Result<SafetensorsFile> open_safetensors(const std::string& path);

/// Returns the bytes before the data: the header's length and text. Fails as format_safetensors_header does.
base::Result<std::string> safetensors_prefix(const SafetensorsHeader& header);

}  // namespace cohort::files
