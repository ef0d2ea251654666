/// FusedTransforms: the last transforms of a Compose, done in one pass over an image of bytes. Private to this folder.
///
/// RandomCrop, CenterCrop and flips only say which pixel goes where, and what ToTensor and Normalize make of a byte is one of 256
/// numbers for each channel, which these transforms themselves have computed beforehand. So the result is, bit for bit, what the
/// transforms give one after the other, and the random numbers are drawn in the same order.
///
/// Thread-safety: const; any number of threads, each with a SampleRandom of its own.
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

/// The pixels of an image, wherever they lie. Strides in bytes.
struct ByteImage {
  const uint8_t* data;
  int64_t num_channels;
  ImageSize size;
  int64_t channel_stride;
  int64_t row_stride;
  int64_t column_stride;
};

/// Along one axis: place p of the result is pixel `from + step * p` of the image, if that is in [begin, end); else it is padding.
struct PixelAxis {
  explicit PixelAxis(int64_t length_) : length(length_), end(length_) {}
  /// `length` places from place `start` on; what is outside of those there are is padding.
  void crop(int64_t start, int64_t new_length);
  void flip();
  /// The places [first, second) that are no padding.
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
  /// As many of the last transforms as can be done in one pass: at most one of them pads, with one number, and ToTensor is among
  /// them. Null: none.
  static std::shared_ptr<const FusedTransforms> at_end_of(const std::vector<Transform>& transforms);

  /// The position of the first of them.
  size_t first() const { return first_; }
  /// Whether it can do this image: bytes on the CPU, with as many channels as Normalize has numbers for.
  bool takes(const at::Tensor& image) const;
  bool takes_channels(int64_t num_channels) const { return tables_.size() == 1 || num_channels == num_tables(); }

  /// Draws where the pixels go. Throws as the transforms do.
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
  /// What becomes of each byte, and of padding: by channel, or one for all.
  std::vector<std::array<float, 256>> tables_;
  std::vector<float> fills_;
};

/// Requires an image that a FusedTransforms takes.
ByteImage byte_image(const at::Tensor& image);

}  // namespace cohort::data
