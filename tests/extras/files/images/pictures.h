/// Images for tests: smooth enough for JPEG, with different pixels and channels everywhere.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "cohort/extras/files/images/image_reader.h"
#include "cohort/extras/files/images/image_writer.h"

namespace cohort::files {

/// Interleaved.
inline std::vector<uint8_t> picture(const ImageShape& shape) {
  std::vector<uint8_t> pixels;
  for (uint32_t y = 0; y < shape.height; ++y) {
    for (uint32_t x = 0; x < shape.width; ++x) {
      for (uint32_t c = 0; c < shape.channels; ++c) {
        const int wave = static_cast<int>((x * 255 / shape.width * (c + 1) + y * (5 + 2 * c)) / 2 + 40 * c) % 510;
        pixels.push_back(static_cast<uint8_t>(255 - std::abs(wave - 255)));
      }
    }
  }
  return pixels;
}

inline std::vector<uint8_t> planes_of(const std::vector<uint8_t>& interleaved, uint32_t channels) {
  std::vector<uint8_t> planes;
  for (uint32_t c = 0; c < channels; ++c) {
    for (size_t i = c; i < interleaved.size(); i += channels) planes.push_back(interleaved[i]);
  }
  return planes;
}

struct Decoded {
  ImageShape shape;
  std::vector<uint8_t> pixels;
  std::string error;
};

/// Guarded by bytes that nobody may write.
inline Decoded decode(std::string_view bytes, const ImageOptions& options = {},
                      ImageLayout layout = ImageLayout::kInterleaved) {
  const InputFile file = InputFile::view("a.img", bytes);
  auto reader = ImageReader::open(file, options);
  if (!reader) return {{}, {}, reader.error().describe()};
  Decoded decoded{reader->shape(), {}, ""};
  constexpr size_t kGuard = 32;
  const size_t size = decoded.shape.num_bytes();
  std::vector<uint8_t> memory(size + 2 * kGuard, 0xA5);
  if (auto done = reader->read(memory.data() + kGuard, layout); !done) decoded.error = done.error().describe();
  for (size_t i = 0; i < kGuard; ++i) {
    EXPECT_EQ(memory[i], 0xA5);
    EXPECT_EQ(memory[kGuard + size + i], 0xA5);
  }
  decoded.pixels.assign(memory.begin() + kGuard, memory.end() - kGuard);
  return decoded;
}

inline int largest_difference(const std::vector<uint8_t>& a, const std::vector<uint8_t>& b) {
  if (a.size() != b.size()) return 256;
  int largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

/// As EXIF orientation says, by definition: where each pixel of the upright image comes from.
inline std::vector<uint8_t> turned(const std::vector<uint8_t>& pixels, const ImageShape& shape, int orientation) {
  const uint32_t height = orientation < 5 ? shape.height : shape.width;
  const uint32_t width = orientation < 5 ? shape.width : shape.height;
  std::vector<uint8_t> result;
  for (uint32_t y = 0; y < height; ++y) {
    for (uint32_t x = 0; x < width; ++x) {
      // The first row of the file is at: 1 the top, 2 the top mirrored, 3 the bottom mirrored, 4 the bottom, 5 the left,
      // 6 the right, 7 the right mirrored, 8 the left mirrored.
      const uint32_t right = width - 1 - x;
      const uint32_t below = height - 1 - y;
      const uint32_t rows[] = {y, y, below, below, x, right, right, x};
      const uint32_t columns[] = {x, right, right, x, y, y, below, below};
      const size_t from = (size_t{rows[orientation - 1]} * shape.width + columns[orientation - 1]) * shape.channels;
      for (uint32_t c = 0; c < shape.channels; ++c) result.push_back(pixels[from + c]);
    }
  }
  return result;
}

}  // namespace cohort::files
