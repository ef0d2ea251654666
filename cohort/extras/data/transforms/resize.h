/// Resize, as torchvision.transforms: antialiased when it makes an image smaller, with the numbers of
/// torch.nn.functional.interpolate(..., antialias=True), uint8 in uint8. Antialiased bytes in planes are resized by
/// extras/files/images/resample.h, everything else by LibTorch's operators; but results one pixel wide are computed in another
/// way, because LibTorch 2.13 gives wrong numbers or an error for some of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "cohort/export.h"
#include "cohort/extras/data/transforms/sample_random.h"

namespace cohort::data {

enum class InterpolationMode { kNearest, kBilinear, kBicubic };

/// Height and width. One number stands for a square, unless a transform says otherwise.
struct ImageSize {
  constexpr ImageSize(int64_t side) : height(side), width(side) {}  // NOLINT(google-explicit-constructor)
  constexpr ImageSize(int64_t height_, int64_t width_) : height(height_), width(width_) {}
  friend bool operator==(const ImageSize&, const ImageSize&) = default;

  int64_t height;
  int64_t width;
};

struct ResizeOptions {
  InterpolationMode interpolation = InterpolationMode::kBilinear;
  /// Only for one number: the longer side becomes at most so long, and the shorter one shorter than asked for.
  std::optional<int64_t> max_size = {};
  /// False: each pixel is made of its next neighbours only, however many there are for it.
  bool antialias = true;
};

class COHORT_API Resize {
 public:
  /// The shorter side becomes `size`; the longer one follows. Throws c10::ValueError unless 0 < size < max_size.
  explicit Resize(int64_t size, ResizeOptions options = {});
  /// To this size, whatever the image's shape. Throws c10::ValueError for sizes that are not positive, and for max_size.
  explicit Resize(ImageSize size, ResizeOptions options = {});

  at::Tensor operator()(const at::Tensor& image) const;
  at::Tensor operator()(const at::Tensor& image, SampleRandom&) const { return (*this)(image); }
  /// What becomes of an image of this size.
  ImageSize output_size(ImageSize image) const;

 private:
  ImageSize size_;
  bool is_shorter_side_;
  ResizeOptions options_;
};

/// The image in this size. Throws c10::TypeError for what is no image, c10::ValueError for sizes that are not positive.
COHORT_API at::Tensor resize_image(const at::Tensor& image, ImageSize size,
                                   InterpolationMode interpolation = InterpolationMode::kBilinear,
                                   bool antialias = true);

}  // namespace cohort::data
