/// RandomRotation, as torchvision.transforms.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>

#include "cohort/export.h"
#include "cohort/extras/data/transforms/resize.h"
#include "cohort/extras/data/transforms/sample_random.h"

namespace cohort::data {

struct RotationOptions {
  /// kNearest or kBilinear.
  InterpolationMode interpolation = InterpolationMode::kNearest;
  /// Enlarges the image to contain all of the rotated one. Excludes `center`.
  bool expand = false;
  /// Column and row of the fixed point. Default: the middle.
  std::optional<std::array<double, 2>> center = {};
  /// For pixels that the rotated image does not cover.
  double fill = 0;
};

/// Rotates an image by a random angle between two bounds, in degrees and counter-clockwise.
class COHORT_API RandomRotation {
 public:
  /// Between -degrees and degrees. Throws c10::ValueError for a negative number.
  explicit RandomRotation(double degrees, RotationOptions options = {});
  explicit RandomRotation(std::array<double, 2> degrees, RotationOptions options = {});
  at::Tensor operator()(const at::Tensor& image, SampleRandom& random) const;

 private:
  std::array<double, 2> degrees_;
  RotationOptions options_;
};

/// Returns the image rotated counter-clockwise by `angle` degrees, as torchvision.transforms.functional.rotate.
COHORT_API at::Tensor rotate_image(const at::Tensor& image, double angle, const RotationOptions& options = {});

}  // namespace cohort::data
