/// The format of images in memory: bytes, one per pixel and channel; 1 channel is gray, 2 gray and alpha, 3 RGB, 4 RGB and alpha.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cohort::files {

/// The channels to which a file's pixels are converted, with the names of torchvision.io.ImageReadMode. Drops alpha that the mode
/// does not have; sets alpha that the file does not have to 255. Colors become gray as in PIL's convert("L"), or the luma of a
/// JPEG.
enum class ImageMode {
  /// The channels of the file. A palette becomes RGB, or RGB and alpha; CMYK becomes RGB.
  kUnchanged,
  kGray,
  kGrayAlpha,
  kRgb,
  kRgbAlpha
};

enum class ImageLayout {
  /// [channels, height, width], as in tensors.
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

/// An image in memory that it does not own. No size may be zero.
struct ImageView {
  const uint8_t* pixels = nullptr;
  ImageShape shape;
  ImageLayout layout = ImageLayout::kPlanes;
};

}  // namespace cohort::files
