#include "cohort/extras/files/images/pixel_rows.h"

#include <algorithm>
#include <cstring>

#ifdef __x86_64__
#include <emmintrin.h>
#endif

namespace cohort::files::detail {
namespace {

// ITU-R 601-2 in units of 1/65536, rounded, as in PIL.
uint8_t luma(const uint8_t* rgb) {
  return static_cast<uint8_t>((rgb[0] * 19595U + rgb[1] * 38470U + rgb[2] * 7471U + 0x8000U) >> 16);
}

// Returns a * b / 255, rounded.
uint32_t product_of_255(uint32_t a, uint32_t b) {
  const uint32_t product = a * b + 128;
  return ((product >> 8) + product) >> 8;
}

#ifdef __x86_64__

// Splits 16 pixels of four bytes into channels: moves bytes that are 4, then 8, 16 and 32 apart next to each other.
void split_16_pixels(const uint8_t* from, __m128i* channels) {
  __m128i a[4];
  __m128i b[4];
  for (int i = 0; i < 4; ++i) a[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from) + i);
  for (int round = 0; round < 2; ++round) {
    b[0] = _mm_unpacklo_epi8(a[0], a[2]);
    b[1] = _mm_unpackhi_epi8(a[0], a[2]);
    b[2] = _mm_unpacklo_epi8(a[1], a[3]);
    b[3] = _mm_unpackhi_epi8(a[1], a[3]);
    a[0] = _mm_unpacklo_epi8(b[0], b[2]);
    a[1] = _mm_unpackhi_epi8(b[0], b[2]);
    a[2] = _mm_unpacklo_epi8(b[1], b[3]);
    a[3] = _mm_unpackhi_epi8(b[1], b[3]);
  }
  for (int i = 0; i < 4; ++i) channels[i] = a[i];
}

// Splits all whole blocks of a row. Returns the number of pixels done.
size_t split_blocks(const uint8_t* row, uint8_t* to, size_t plane, size_t channels, size_t width) {
  size_t x = 0;
  for (; x + 16 <= width; x += 16) {
    __m128i blocks[4];
    split_16_pixels(row + 4 * x, blocks);
    for (size_t c = 0; c < channels; ++c) _mm_storeu_si128(reinterpret_cast<__m128i*>(to + c * plane + x), blocks[c]);
  }
  return x;
}

#else

size_t split_blocks(const uint8_t*, uint8_t*, size_t, size_t, size_t) { return 0; }

#endif

}  // namespace

void convert_row(const uint8_t* from, uint32_t from_channels, uint8_t* to, uint32_t to_channels, size_t width) {
  if (from_channels == to_channels) {
    std::memcpy(to, from, width * to_channels);
    return;
  }
  const bool from_color = from_channels >= 3;
  const bool to_color = to_channels >= 3;
  const bool from_alpha = from_channels % 2 == 0;
  const bool to_alpha = to_channels % 2 == 0;
  for (size_t x = 0; x < width; ++x, from += from_channels, to += to_channels) {
    if (to_color) {
      for (size_t c = 0; c < 3; ++c) to[c] = from_color ? from[c] : from[0];
    } else {
      to[0] = from_color ? luma(from) : from[0];
    }
    if (to_alpha) to[to_channels - 1] = from_alpha ? from[from_channels - 1] : 255;
  }
}

void inverted_cmyk_to_rgb(const uint8_t* from, uint8_t* to, size_t width) {
  for (size_t x = 0; x < width; ++x, from += 4, to += 3) {
    const uint32_t light = from[3];
    for (size_t c = 0; c < 3; ++c) to[c] = static_cast<uint8_t>(light - product_of_255(255U - from[c], light));
  }
}

ImageShape RowSink::turned(const ImageShape& decoded, int orientation) {
  return orientation < 5 ? decoded : ImageShape{decoded.width, decoded.height, decoded.channels};
}

RowSink::RowSink(uint8_t* pixels, ImageLayout layout, const ImageShape& decoded, int orientation)
    : pixels_(pixels), shape_(decoded), layout_(layout), y_step_(decoded.width) {
  const ptrdiff_t width = decoded.width;
  const ptrdiff_t height = decoded.height;
  const bool is_upright = orientation < 5;
  // The directions in which the rotated image runs backwards, in terms of the decoded image.
  const bool flips_x = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool flips_y = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  x_step_ = is_upright ? 1 : height;
  y_step_ = is_upright ? width : 1;
  if (flips_x) {
    origin_ += (width - 1) * x_step_;
    x_step_ = -x_step_;
  }
  if (flips_y) {
    origin_ += (height - 1) * y_step_;
    y_step_ = -y_step_;
  }
}

uint8_t* RowSink::row(size_t y) {
  if (x_step_ != 1 || (layout_ == ImageLayout::kPlanes && shape_.channels > 1)) return nullptr;
  return pixels_ + (origin_ + static_cast<ptrdiff_t>(y) * y_step_) * shape_.channels;
}

void RowSink::put(size_t y, const uint8_t* row, size_t stride) {
  const size_t channels = shape_.channels;
  const size_t width = shape_.width;
  const ptrdiff_t begin = origin_ + static_cast<ptrdiff_t>(y) * y_step_;
  const size_t plane = size_t{shape_.height} * width;
  if (x_step_ == 1 && layout_ == ImageLayout::kPlanes) {
    uint8_t* to = pixels_ + begin;
    for (size_t x = stride == 4 ? split_blocks(row, to, plane, channels, width) : 0; x < width; ++x) {
      for (size_t c = 0; c < channels; ++c) to[c * plane + x] = row[x * stride + c];
    }
    return;
  }
  // The distances between neighboring pixels, and between channels.
  const ptrdiff_t pixel_size = layout_ == ImageLayout::kPlanes ? 1 : static_cast<ptrdiff_t>(channels);
  const size_t channel_size = layout_ == ImageLayout::kPlanes ? plane : 1;
  uint8_t* to = pixels_ + begin * pixel_size;
  for (size_t x = 0; x < width; ++x, row += stride) {
    for (size_t c = 0; c < channels; ++c) to[c * channel_size] = row[c];
    if (x + 1 < width) to += x_step_ * pixel_size;
  }
}

}  // namespace cohort::files::detail
