/// TFRecord: the framing of records in TensorBoard's files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace cohort::report {

/// CRC-32C (Castagnoli).
uint32_t crc32c(std::string_view bytes);
/// Returns the checksum as TFRecord stores it: rotated and shifted, so that it stays strong for bytes that contain checksums.
uint32_t masked_crc32c(std::string_view bytes);

/// Returns length (8 bytes), its checksum (4), the record, and its checksum (4); little-endian.
std::string framed_record(std::string_view record);

}  // namespace cohort::report
