/// Resize, as torchvision.transforms: antialiased when it makes an image smaller, with the numbers of
/// torch.nn.functional.interpolate(..., antialias=True); uint8 stays uint8. extras/files/images/resample.h resizes antialiased
/// bytes in planes, LibTorch's operators everything else; results one pixel wide are computed in another way, as LibTorch 2.13
/// returns wrong numbers or an error for some of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "cohort/export.h"
#include "cohort/extras/data/transforms/sample_random.h"

namespace cohort::data {

enum class InterpolationMode { kNearest, kBilinear, kBicubic };

/// Height and width. One number means a square, unless a transform says otherwise.
struct ImageSize {
  constexpr ImageSize(int64_t side) : height(side), width(side) {}  // NOLINT(google-explicit-constructor)
  constexpr ImageSize(int64_t height_, int64_t width_) : height(height_), width(width_) {}
  friend bool operator==(const ImageSize&, const ImageSize&) = default;

  int64_t height;
  int64_t width;
};

struct ResizeOptions {
  InterpolationMode interpolation = InterpolationMode::kBilinear;
  /// Only with one number as size: the longer side becomes at most this long, and the shorter one is scaled with it.
  std::optional<int64_t> max_size = {};
  /// If false, each pixel is computed from its nearest neighbors only, even if the image becomes much smaller.
  bool antialias = true;
};

class COHORT_API Resize {
 public:
  /// Resizes the shorter side to `size`, and the longer one in proportion. Throws c10::ValueError unless 0 < size < max_size.
  explicit Resize(int64_t size, ResizeOptions options = {});
  /// Resizes to this size, whatever the image's shape. Throws c10::ValueError for sizes that are not positive, and for max_size.
  explicit Resize(ImageSize size, ResizeOptions options = {});

  at::Tensor operator()(const at::Tensor& image) const;
  at::Tensor operator()(const at::Tensor& image, SampleRandom&) const { return (*this)(image); }
  /// Returns the size of the result for an image of this size.
  ImageSize output_size(ImageSize image) const;

 private:
  ImageSize size_;
  bool is_shorter_side_;
  ResizeOptions options_;
};

/// Returns the resized image. Throws c10::TypeError if it is not an image, and c10::ValueError for sizes that are not positive.
COHORT_API at::Tensor resize_image(const at::Tensor& image, ImageSize size,
                                   InterpolationMode interpolation = InterpolationMode::kBilinear,
                                   bool antialias = true);

}  // namespace cohort::data
