/// CenterCrop, RandomCrop and RandomResizedCrop, as torchvision.transforms.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "cohort/export.h"
#include "cohort/extras/data/transforms/resize.h"
#include "cohort/extras/data/transforms/sample_random.h"

namespace cohort::data {

/// The upper left corner of a crop in an image; a negative number is in the padding before it.
struct CropPlace {
  int64_t top;
  int64_t left;
};

/// Crops the middle of an image, and pads a smaller one with zeros.
class COHORT_API CenterCrop {
 public:
  /// Throws c10::ValueError for sizes that are not positive, as the other transforms here.
  explicit CenterCrop(ImageSize size);
  at::Tensor operator()(const at::Tensor& image) const;
  at::Tensor operator()(const at::Tensor& image, SampleRandom&) const { return (*this)(image); }

  ImageSize size() const { return size_; }
  /// Returns the corner of the crop in an image of this size.
  CropPlace place(ImageSize image) const;

 private:
  ImageSize size_;
};

/// The pixels beyond the edge of an image: a number, the edge's pixel, or the image mirrored at the edge, without or with the
/// edge's pixel.
enum class PaddingMode { kConstant, kEdge, kReflect, kSymmetric };

struct RandomCropOptions {
  /// One number for all sides, two for (left and right, top and bottom), or four for (left, top, right, bottom).
  std::vector<int64_t> padding = {};
  /// Whether to pad an image that is too small.
  bool pad_if_needed = false;
  double fill = 0;
  PaddingMode padding_mode = PaddingMode::kConstant;
};

/// Crops to this size, with a random corner, uniformly distributed.
class COHORT_API RandomCrop {
 public:
  explicit RandomCrop(ImageSize size, RandomCropOptions options = {});
  /// Throws c10::ValueError for an image that is too small.
  at::Tensor operator()(const at::Tensor& image, SampleRandom& random) const;

  ImageSize size() const { return size_; }
  /// Draws the corner of a crop in an image of this size. Throws like operator().
  CropPlace choose_place(ImageSize image, SampleRandom& random) const;
  /// The number that it pads with; absent if it never pads, NaN if it pads with pixels of the image.
  std::optional<double> padding_value() const;

 private:
  std::array<int64_t, 4> sides_for(ImageSize image) const;

  ImageSize size_;
  RandomCropOptions options_;
};

struct RandomResizedCropOptions {
  /// Bounds of the crop's area relative to the image's, and of its width relative to its height.
  std::array<double, 2> scale = {0.08, 1.0};
  std::array<double, 2> ratio = {3.0 / 4.0, 4.0 / 3.0};
  InterpolationMode interpolation = InterpolationMode::kBilinear;
  bool antialias = true;
};

/// Crops a part of a random size and shape, and resizes it to `size`.
class COHORT_API RandomResizedCrop {
 public:
  explicit RandomResizedCrop(ImageSize size, RandomResizedCropOptions options = {});
  at::Tensor operator()(const at::Tensor& image, SampleRandom& random) const;

  struct Part {
    int64_t top;
    int64_t left;
    int64_t height;
    int64_t width;
  };
  /// Draws the part for an image of this size.
  Part choose_part(ImageSize image, SampleRandom& random) const;

 private:
  ImageSize size_;
  RandomResizedCropOptions options_;
};

/// Returns the image with padding on each side. Throws c10::ValueError if kReflect or kSymmetric need more pixels than there are.
COHORT_API at::Tensor pad_image(const at::Tensor& image, const std::vector<int64_t>& padding, double fill = 0,
                                PaddingMode mode = PaddingMode::kConstant);

}  // namespace cohort::data
