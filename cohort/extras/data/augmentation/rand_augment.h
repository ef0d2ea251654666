/// RandAugment (Cubuk et al., 2019), as torchvision.transforms: applies some of 14 changes, all of the same strength.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "cohort/export.h"
#include "cohort/extras/data/transforms/resize.h"
#include "cohort/extras/data/transforms/sample_random.h"

namespace cohort::data {

struct RandAugmentOptions {
  int64_t num_ops = 2;
  /// In [0, num_magnitude_bins).
  int64_t magnitude = 9;
  int64_t num_magnitude_bins = 31;
  /// kNearest or kBilinear.
  InterpolationMode interpolation = InterpolationMode::kNearest;
  /// For pixels that a moved image does not cover. If absent, zeros.
  std::optional<double> fill = {};
};

enum class Augmentation {
  kIdentity,
  kShearX,
  kShearY,
  kTranslateX,
  kTranslateY,
  kRotate,
  kBrightness,
  kColor,
  kContrast,
  kSharpness,
  kPosterize,
  kSolarize,
  kAutoContrast,
  kEqualize,
};
inline constexpr int kNumAugmentations = 14;

class COHORT_API RandAugment {
 public:
  /// Throws c10::ValueError for a magnitude outside its range.
  explicit RandAugment(RandAugmentOptions options = {});
  /// Throws c10::TypeError unless the image is uint8 with 1 or 3 channels.
  at::Tensor operator()(const at::Tensor& image, SampleRandom& random) const;

  /// Returns the strength of a change of an image of this size, before its sign is drawn.
  double strength(Augmentation change, ImageSize image) const;
  /// Applies one change of this strength.
  at::Tensor apply(Augmentation change, double strength, const at::Tensor& image) const;

 private:
  RandAugmentOptions options_;
};

}  // namespace cohort::data
