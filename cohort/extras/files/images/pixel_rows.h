/// Rows of pixels on their way from a decoder to the caller's memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cohort/extras/files/images/image_format.h"

namespace cohort::files::detail {

/// From one number of channels to another, 1 to 4 each (image_format.h); the rows must not overlap. Colours become grey as with
/// PIL's convert("L").
void convert_row(const uint8_t* from, uint32_t from_channels, uint8_t* to, uint32_t to_channels, size_t width);

/// PIL's CMYK to RGB, of bytes that are inverted, as JPEG files have them.
void inverted_cmyk_to_rgb(const uint8_t* from, uint8_t* to, size_t width);

/// The memory of an image, filled row by row, turned as EXIF orientation asks.
class RowSink {
 public:
  /// `decoded`: the image as it comes, before it is turned.
  RowSink(uint8_t* pixels, ImageLayout layout, const ImageShape& decoded, int orientation);

  /// Each pixel of the row has `stride` bytes, of which the first `channels` count.
  void put(size_t y, const uint8_t* row, size_t stride);
  /// Where row `y` may be written in place, pixels beside each other; null where it has to come through put().
  uint8_t* row(size_t y);

  /// The shape after turning.
  static ImageShape turned(const ImageShape& decoded, int orientation);

 private:
  uint8_t* pixels_;
  ImageShape shape_;
  ImageLayout layout_;
  // Of a pixel (x, y) of the decoded image: origin + x * x_step + y * y_step, in pixels.
  ptrdiff_t origin_ = 0;
  ptrdiff_t x_step_ = 1;
  ptrdiff_t y_step_;
};

}  // namespace cohort::files::detail
