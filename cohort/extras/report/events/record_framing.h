/// TFRecord: how TensorBoard's files hold one record after the other.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace cohort::report {

/// CRC-32C (Castagnoli).
uint32_t crc32c(std::string_view bytes);
/// As TFRecord stores it: turned and shifted, so that the checksum of bytes that hold checksums stays a good one.
uint32_t masked_crc32c(std::string_view bytes);

/// Length (8 bytes), its checksum (4), the record, its checksum (4); little-endian.
std::string framed_record(std::string_view record);

}  // namespace cohort::report
