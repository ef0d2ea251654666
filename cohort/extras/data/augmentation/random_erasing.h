/// RandomErasing, as torchvision.transforms: overwrites a rectangle of the image.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <vector>

#include "cohort/export.h"
#include "cohort/extras/data/transforms/sample_random.h"

namespace cohort::data {

struct RandomErasingOptions {
  double p = 0.5;
  /// Bounds of the rectangle's area relative to the image's, and of its height relative to its width.
  std::array<double, 2> scale = {0.02, 0.33};
  std::array<double, 2> ratio = {0.3, 3.3};
  /// One number, or one per channel. If empty, each pixel is a normally distributed number (Python's "random"), for
  /// floating-point images.
  std::vector<double> value = {0};
};

class COHORT_API RandomErasing {
 public:
  /// Throws c10::ValueError for a probability outside [0, 1], a scale outside [0, 1], or bounds in the wrong order.
  explicit RandomErasing(RandomErasingOptions options = {});
  /// Throws c10::ValueError if there are several values, but not one per channel.
  at::Tensor operator()(const at::Tensor& image, SampleRandom& random) const;

 private:
  void erase(const at::Tensor& part, SampleRandom& random) const;

  RandomErasingOptions options_;
};

}  // namespace cohort::data
