/// FusedTransforms: runs the last transforms of a Compose in one pass over a uint8 image. Private to this folder.
///
/// RandomCrop, CenterCrop and flips only move pixels, and ToTensor and Normalize map a byte to one of 256 numbers per channel,
/// which the transforms themselves compute in advance. So the result has the same bits as the transforms one after the other, and
/// random numbers are drawn in the same order.
///
/// Thread-safety: const; any number of threads, each with its own SampleRandom.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "cohort/export.h"
#include "cohort/extras/data/transforms/compose.h"
#include "cohort/extras/data/transforms/crop.h"
#include "cohort/extras/data/transforms/flip.h"

namespace cohort::data {

/// The pixels of an image with any layout. Strides in bytes.
struct ByteImage {
  const uint8_t* data;
  int64_t num_channels;
  ImageSize size;
  int64_t channel_stride;
  int64_t row_stride;
  int64_t column_stride;
};

/// One axis: position p of the result is pixel `from + step * p` of the image if p is in [begin, end); else it is padding.
struct PixelAxis {
  explicit PixelAxis(int64_t length_) : length(length_), end(length_) {}
  /// Crops to `new_length` positions from position `start` on; positions beyond the existing ones are padding.
  void crop(int64_t start, int64_t new_length);
  void flip();
  /// Returns the positions [first, second) that are not padding.
  std::pair<int64_t, int64_t> inside() const;

  int64_t length;
  int64_t from = 0;
  int64_t step = 1;
  int64_t begin = 0;
  int64_t end;
};

struct PixelPlaces {
  PixelAxis rows;
  PixelAxis columns;
};

class COHORT_TEST_API FusedTransforms {
 public:
  /// Fuses as many of the last transforms as possible: at most one of them pads, with one number, and ToTensor is among them.
  /// Returns null if none can be fused.
  static std::shared_ptr<const FusedTransforms> at_end_of(const std::vector<Transform>& transforms);

  /// The index of the first fused transform.
  size_t first() const { return first_; }
  /// Whether it supports this image: bytes on the CPU, with as many channels as Normalize has numbers for.
  bool takes(const at::Tensor& image) const;
  bool takes_channels(int64_t num_channels) const { return tables_.size() == 1 || num_channels == num_tables(); }

  /// Draws the positions of the pixels. Throws like the transforms.
  PixelPlaces choose_places(ImageSize image, SampleRandom& random) const;
  /// Writes [channels, rows, columns].
  void write(const ByteImage& image, const PixelPlaces& places, float* result) const;

 private:
  using Move = std::variant<RandomCrop, CenterCrop, RandomHorizontalFlip, RandomVerticalFlip>;
  FusedTransforms() = default;
  bool make_tables(const std::vector<Transform>& transforms);
  int64_t num_tables() const { return static_cast<int64_t>(tables_.size()); }

  size_t first_ = 0;
  std::vector<Move> moves_;
  /// The results for each byte, and for padding: per channel, or one for all.
  std::vector<std::array<float, 256>> tables_;
  std::vector<float> fills_;
};

/// Requires an image that a FusedTransforms takes.
ByteImage byte_image(const at::Tensor& image);

}  // namespace cohort::data
