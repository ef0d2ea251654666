/// The checksum that zip files have for each record (CRC-32 of IEEE 802.3), at several GB/s.
#pragma once

#include <cstdint>
#include <string_view>

namespace cohort::files {

/// Continues from `before`, the checksum of the bytes so far; 0 to begin.
uint32_t crc32(std::string_view bytes, uint32_t before = 0);

/// Returns the checksum of two parts in sequence, given their checksums.
uint32_t join_crc32(uint32_t first, uint32_t second, uint64_t size_of_second);

}  // namespace cohort::files
