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
  /// Make the image large enough to hold all of the rotated one. Not together with `center`.
  bool expand = false;
  /// Column and row of the point that stays where it is. Default: the middle.
  std::optional<std::array<double, 2>> center = {};
  /// What is not covered by the image.
  double fill = 0;
};

/// Turns an image by an angle between two bounds, in degrees and against the clock.
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

/// The image turned by `angle` degrees against the clock, as torchvision.transforms.functional.rotate.
COHORT_API at::Tensor rotate_image(const at::Tensor& image, double angle, const RotationOptions& options = {});

}  // namespace cohort::data
