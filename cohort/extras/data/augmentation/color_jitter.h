/// ColorJitter, as torchvision.transforms: changes brightness, contrast, saturation and hue at random, in a random order.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>

#include "cohort/export.h"
#include "cohort/extras/data/transforms/sample_random.h"

namespace cohort::data {

/// Bounds of a factor, or one number v for the bounds [max(0, 1 - v), 1 + v], for hue [-v, v].
struct JitterRange {
  JitterRange() = default;
  JitterRange(double around_) : around(around_) {}                         // NOLINT(google-explicit-constructor)
  JitterRange(double low, double high) : bounds(std::array{low, high}) {}  // NOLINT(google-explicit-constructor)

  double around = 0;
  std::optional<std::array<double, 2>> bounds = {};
};

struct ColorJitterOptions {
  JitterRange brightness = {};
  JitterRange contrast = {};
  JitterRange saturation = {};
  JitterRange hue = {};
};

class COHORT_API ColorJitter {
 public:
  /// Throws c10::ValueError for a negative number, and for bounds outside [0, inf), for hue outside [-0.5, 0.5].
  explicit ColorJitter(const ColorJitterOptions& options);
  /// Throws c10::TypeError unless the image has 1 or 3 channels.
  at::Tensor operator()(const at::Tensor& image, SampleRandom& random) const;

 private:
  /// Bounds of brightness, contrast, saturation and hue. Absent if it does not change.
  std::array<std::optional<std::array<double, 2>>, 4> bounds_;
};

}  // namespace cohort::data
