/// RandomHorizontalFlip and RandomVerticalFlip, as torchvision.transforms.
#pragma once

#include <ATen/core/Tensor.h>

#include "cohort/export.h"
#include "cohort/extras/data/transforms/sample_random.h"

namespace cohort::data {

/// Left and right change places, with probability p.
class COHORT_API RandomHorizontalFlip {
 public:
  explicit RandomHorizontalFlip(double p = 0.5) : p_(p) {}
  at::Tensor operator()(const at::Tensor& image, SampleRandom& random) const;
  /// Whether it would flip the image.
  bool flips(SampleRandom& random) const { return random.chance(p_); }

 private:
  double p_;
};

/// Top and bottom change places, with probability p.
class COHORT_API RandomVerticalFlip {
 public:
  explicit RandomVerticalFlip(double p = 0.5) : p_(p) {}
  at::Tensor operator()(const at::Tensor& image, SampleRandom& random) const;
  /// Whether it would flip the image.
  bool flips(SampleRandom& random) const { return random.chance(p_); }

 private:
  double p_;
};

}  // namespace cohort::data
