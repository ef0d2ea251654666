/// RandomHorizontalFlip and RandomVerticalFlip, as torchvision.transforms.
#pragma once

#include <ATen/core/Tensor.h>

#include "cohort/export.h"
#include "cohort/extras/data/transforms/sample_random.h"

namespace cohort::data {

/// Flips left and right with probability p.
class COHORT_API RandomHorizontalFlip {
 public:
  explicit RandomHorizontalFlip(double p = 0.5) : p_(p) {}
  at::Tensor operator()(const at::Tensor& image, SampleRandom& random) const;
  /// Draws whether to flip the image.
  bool flips(SampleRandom& random) const { return random.chance(p_); }

 private:
  double p_;
};

/// Flips top and bottom with probability p.
class COHORT_API RandomVerticalFlip {
 public:
  explicit RandomVerticalFlip(double p = 0.5) : p_(p) {}
  at::Tensor operator()(const at::Tensor& image, SampleRandom& random) const;
  /// Draws whether to flip the image.
  bool flips(SampleRandom& random) const { return random.chance(p_); }

 private:
  double p_;
};

}  // namespace cohort::data
