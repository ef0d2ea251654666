/// Copies rows of pixels from a decoder to the caller's memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cohort/extras/files/images/image_format.h"

namespace cohort::files::detail {

/// Converts between numbers of channels, 1 to 4 each (image_format.h); the rows must not overlap. Colors become gray as in PIL's
/// convert("L").
void convert_row(const uint8_t* from, uint32_t from_channels, uint8_t* to, uint32_t to_channels, size_t width);

/// Converts CMYK to RGB like PIL, from inverted bytes, which JPEG files have.
void inverted_cmyk_to_rgb(const uint8_t* from, uint8_t* to, size_t width);

/// The memory of an image, filled row by row, and rotated by its EXIF orientation.
class RowSink {
 public:
  /// `decoded`: the shape of the decoded image, before rotation.
  RowSink(uint8_t* pixels, ImageLayout layout, const ImageShape& decoded, int orientation);

  /// Each pixel of the row has `stride` bytes, of which only the first `channels` are used.
  void put(size_t y, const uint8_t* row, size_t stride);
  /// Returns the address of row `y` if it can be written in place, with interleaved channels; null if it must come through put().
  uint8_t* row(size_t y);

  /// The shape after rotation.
  static ImageShape turned(const ImageShape& decoded, int orientation);

 private:
  uint8_t* pixels_;
  ImageShape shape_;
  ImageLayout layout_;
  // Pixel (x, y) of the decoded image goes to origin + x * x_step + y * y_step, in pixels.
  ptrdiff_t origin_ = 0;
  ptrdiff_t x_step_ = 1;
  ptrdiff_t y_step_;
};

}  // namespace cohort::files::detail
