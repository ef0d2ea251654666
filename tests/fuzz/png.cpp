// PNG files, decoded in every mode and layout; the first byte chooses them. Each input is read as it is, and again with checksums
// made right, behind which libpng would otherwise hide most of its code.
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "cohort/extras/files/images/image_reader.h"
#include "tests/fuzz/fuzz.h"

namespace cohort::fuzz {
namespace {

constexpr size_t kSignature = 8;
constexpr size_t kAroundChunk = 12;

uint32_t checksum(std::string_view bytes) {
  static const auto table = [] {
    std::array<uint32_t, 256> entries{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) value = value & 1 ? 0xEDB88320U ^ value >> 1 : value >> 1;
      entries[i] = value;
    }
    return entries;
  }();
  uint32_t sum = 0xFFFFFFFFU;
  for (const char byte : bytes) sum = table[(sum ^ static_cast<uint8_t>(byte)) & 255] ^ sum >> 8;
  return ~sum;
}

std::string with_right_checksums(std::string_view bytes) {
  std::string png(bytes);
  for (size_t at = kSignature; png.size() >= kAroundChunk && at <= png.size() - kAroundChunk;) {
    uint32_t size = 0;
    for (size_t i = 0; i < 4; ++i) size = size << 8 | static_cast<uint8_t>(png[at + i]);
    if (size > png.size() - at - kAroundChunk) break;
    const uint32_t sum = checksum(std::string_view(png).substr(at + 4, size + 4));
    for (size_t i = 0; i < 4; ++i) png[at + 8 + size + i] = static_cast<char>(sum >> (24 - 8 * i));
    at += size + kAroundChunk;
  }
  return png;
}

void decode(std::string_view bytes, uint8_t choice) {
  using namespace cohort::files;
  const InputFile file = InputFile::view("input", bytes);
  constexpr uint64_t kMaxPixels = 1 << 18;
  auto reader = ImageReader::open(file, {.mode = static_cast<ImageMode>(choice % 5),
                                         .apply_exif_orientation = (choice & 128) != 0,
                                         .max_pixels = kMaxPixels});
  if (!reader) return;
  const ImageShape shape = reader->shape();
  FUZZ_CHECK(shape.channels >= 1 && shape.channels <= 4 && shape.num_bytes() > 0);
  FUZZ_CHECK(shape.num_bytes() <= kMaxPixels * 4);
  std::vector<uint8_t> pixels(shape.num_bytes());
  if (!reader->read(pixels.data(), choice & 32 ? ImageLayout::kInterleaved : ImageLayout::kPlanes)) return;
}

}  // namespace
}  // namespace cohort::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto bytes = cohort::fuzz::text_of(data + 1, size - 1);
  cohort::fuzz::decode(bytes, data[0]);
  cohort::fuzz::decode(cohort::fuzz::with_right_checksums(bytes), data[0]);
  return 0;
}
