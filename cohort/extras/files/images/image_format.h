/// What images are made of here: bytes, one per pixel and channel; 1 channel is grey, 2 grey and alpha, 3 RGB, 4 RGB and alpha.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cohort::files {

/// What a file's pixels become; names as torchvision.io.ImageReadMode. Alpha that is not asked for is dropped, alpha that a file
/// does not have is 255; grey of colours is PIL's convert("L"), or the luma that a JPEG holds.
enum class ImageMode {
  /// The channels of the file. A palette becomes RGB, or RGB and alpha; CMYK becomes RGB.
  kUnchanged,
  kGray,
  kGrayAlpha,
  kRgb,
  kRgbAlpha
};

enum class ImageLayout {
  /// [channels, height, width], as tensors are.
  kPlanes,
  /// [height, width, channels].
  kInterleaved
};

struct ImageShape {
  uint32_t height = 0;
  uint32_t width = 0;
  uint32_t channels = 0;

  size_t num_bytes() const { return size_t{height} * width * channels; }
  friend bool operator==(const ImageShape&, const ImageShape&) = default;
};

/// An image in memory of somebody else. No size may be zero.
struct ImageView {
  const uint8_t* pixels = nullptr;
  ImageShape shape;
  ImageLayout layout = ImageLayout::kPlanes;
};

}  // namespace cohort::files
