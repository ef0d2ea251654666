/// Resizes images in bytes, antialiased, with the same bits as torch.nn.functional.interpolate(mode="bilinear" or "bicubic",
/// antialias=True) on uint8 (LibTorch 2.13, aten/src/ATen/native/cpu/UpSampleKernel.cpp: weights of 16 bits, rows first, then
/// columns, bytes in between). Reads and computes only what a window of the result needs.
///
/// Thread-safety: any number of threads.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cohort::files {

enum class ResampleFilter { kBilinear, kBicubic };

/// Planes of bytes, possibly a part of larger ones. The pixels of a row are contiguous. No size may be zero.
struct PlanesView {
  const uint8_t* pixels;
  size_t channels;
  size_t height;
  size_t width;
  ptrdiff_t channel_stride;
  ptrdiff_t row_stride;
};

/// A size, and the window of the resized image that is wanted; it must be inside the image.
struct ResampleTarget {
  size_t height;
  size_t width;
  size_t window_top;
  size_t window_left;
  size_t window_height;
  size_t window_width;

  static ResampleTarget whole(size_t height, size_t width) { return {height, width, 0, 0, height, width}; }
};

/// Writes [channels, window_height, window_width].
void resample(const PlanesView& from, const ResampleTarget& target, ResampleFilter filter, uint8_t* to);

namespace detail {
/// resample() in plain C++, without its 256-bit instructions.
void resample_plainly(const PlanesView& from, const ResampleTarget& target, ResampleFilter filter, uint8_t* to);
}  // namespace detail

}  // namespace cohort::files
