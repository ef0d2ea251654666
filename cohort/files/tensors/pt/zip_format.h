/// The numbers with which the parts of a zip file begin, and their sizes in bytes without names and extra parts.
#pragma once

#include <cstdint>

namespace cohort::files::zip {

constexpr uint32_t kHeader = 0x04034b50, kDescriptor = 0x08074b50, kEntry = 0x02014b50, kEnd = 0x06054b50;
constexpr uint32_t kLargeEnd = 0x06064b50, kLocator = 0x07064b50;
constexpr uint64_t kHeaderSize = 30, kEntrySize = 46, kEndSize = 22, kLargeEndSize = 56, kLocatorSize = 20;
/// The first number that needs 64 bits.
constexpr uint64_t kLarge = 0xFFFFFFFF;

}  // namespace cohort::files::zip
