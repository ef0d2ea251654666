#include "cohort/extras/files/images/exif.h"

#include <cstddef>
#include <cstdint>

namespace cohort::files::detail {
namespace {

constexpr uint64_t kOrientationTag = 0x0112;
constexpr uint64_t kShortType = 3;
constexpr size_t kEntrySize = 12;

// Returns 0 beyond the end.
uint64_t tiff_number(std::string_view tiff, size_t offset, size_t size, bool is_little_endian) {
  if (offset > tiff.size() || tiff.size() - offset < size) return 0;
  uint64_t value = 0;
  for (size_t i = 0; i < size; ++i) {
    const size_t at = is_little_endian ? size - 1 - i : i;
    value = value << 8 | static_cast<unsigned char>(tiff[offset + at]);
  }
  return value;
}

}  // namespace

int exif_orientation(std::string_view tiff) {
  const bool is_little_endian = tiff.starts_with("II");
  if (!is_little_endian && !tiff.starts_with("MM")) return 1;
  const auto number = [&](size_t offset, size_t size) { return tiff_number(tiff, offset, size, is_little_endian); };
  if (number(2, 2) != 42) return 1;
  const size_t directory = number(4, 4);
  const size_t num_entries = number(directory, 2);
  for (size_t i = 0; i < num_entries; ++i) {
    const size_t entry = directory + 2 + i * kEntrySize;
    if (number(entry, 2) != kOrientationTag) continue;
    const uint64_t value = number(entry + 2, 2) == kShortType ? number(entry + 8, 2) : 0;
    return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

}  // namespace cohort::files::detail
