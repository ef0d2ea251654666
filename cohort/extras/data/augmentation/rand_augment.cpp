#include "cohort/extras/data/augmentation/rand_augment.h"

#include <c10/util/Exception.h>

#include <cmath>
#include <numbers>

#include "cohort/extras/data/transforms/affine.h"
#include "cohort/extras/data/transforms/color.h"
#include "cohort/extras/data/transforms/image.h"
#include "cohort/extras/data/transforms/rotation.h"

namespace cohort::data {
namespace {

// Whether the sign of the strength is drawn at random.
bool is_signed(Augmentation change) { return change >= Augmentation::kShearX && change <= Augmentation::kSharpness; }

double degrees(double radians) { return radians * 180.0 / std::numbers::pi; }

}  // namespace

RandAugment::RandAugment(RandAugmentOptions options) : options_(options) {
  check_grid_interpolation(options.interpolation, "RandAugment");
  TORCH_CHECK_VALUE(options.num_ops >= 0, "[cohort] RandAugment needs num_ops >= 0, but got ", options.num_ops);
  TORCH_CHECK_VALUE(
      options.num_magnitude_bins >= 2 && options.magnitude >= 0 && options.magnitude < options.num_magnitude_bins,
      "[cohort] RandAugment needs 0 <= magnitude < num_magnitude_bins, but got ", options.magnitude, " and ",
      options.num_magnitude_bins);
}

// As _augmentation_space of torchvision/transforms/autoaugment.py.
double RandAugment::strength(Augmentation change, ImageSize image) const {
  const double share = static_cast<double>(options_.magnitude) / static_cast<double>(options_.num_magnitude_bins - 1);
  switch (change) {
    case Augmentation::kShearX:
    case Augmentation::kShearY:
      return 0.3 * share;
    case Augmentation::kTranslateX:
      return 150.0 / 331.0 * static_cast<double>(image.width) * share;
    case Augmentation::kTranslateY:
      return 150.0 / 331.0 * static_cast<double>(image.height) * share;
    case Augmentation::kRotate:
      return 30.0 * share;
    case Augmentation::kBrightness:
    case Augmentation::kColor:
    case Augmentation::kContrast:
    case Augmentation::kSharpness:
      return 0.9 * share;
    case Augmentation::kPosterize:
      return static_cast<double>(8 - python_round(4.0 * share));
    case Augmentation::kSolarize:
      return 255.0 * (1.0 - share);
    default:
      return 0.0;
  }
}

at::Tensor RandAugment::apply(Augmentation change, double strength, const at::Tensor& image) const {
  const ImageSize size(height_of(image), width_of(image));
  const auto move = [&](const AffineMap& map) {
    return move_pixels(image, inverse_matrix(map), options_.interpolation, options_.fill, size);
  };
  // Shears keep the upper left corner.
  const std::array<double, 2> corner = {-0.5 * static_cast<double>(size.width),
                                        -0.5 * static_cast<double>(size.height)};
  switch (change) {
    case Augmentation::kIdentity:
      return image;
    case Augmentation::kShearX:
      return move({.shear = {degrees(std::atan(strength)), 0}, .center = corner});
    case Augmentation::kShearY:
      return move({.shear = {0, degrees(std::atan(strength))}, .center = corner});
    case Augmentation::kTranslateX:
      return move({.translate = {std::trunc(strength), 0}});
    case Augmentation::kTranslateY:
      return move({.translate = {0, std::trunc(strength)}});
    case Augmentation::kRotate:
      return move({.angle = -strength});
    case Augmentation::kBrightness:
      return adjust_brightness(image, 1.0 + strength);
    case Augmentation::kColor:
      return adjust_saturation(image, 1.0 + strength);
    case Augmentation::kContrast:
      return adjust_contrast(image, 1.0 + strength);
    case Augmentation::kSharpness:
      return adjust_sharpness(image, 1.0 + strength);
    case Augmentation::kPosterize:
      return posterize(image, static_cast<int>(strength));
    case Augmentation::kSolarize:
      return solarize(image, strength);
    case Augmentation::kAutoContrast:
      return autocontrast(image);
    case Augmentation::kEqualize:
      return equalize(image);
  }
  return image;
}

at::Tensor RandAugment::operator()(const at::Tensor& image, SampleRandom& random) const {
  check_image(image, "RandAugment");
  check_channels(image);
  TORCH_CHECK_TYPE(image.scalar_type() == at::kByte, "[cohort] RandAugment needs a uint8 image, but got ",
                   image.scalar_type());
  at::Tensor result = image;
  for (int64_t i = 0; i < options_.num_ops; ++i) {
    const auto change = static_cast<Augmentation>(random.integer(0, kNumAugmentations));
    double much = strength(change, {height_of(image), width_of(image)});
    if (is_signed(change) && random.integer(0, 2) == 1) much = -much;
    result = apply(change, much, result);
  }
  return result;
}

}  // namespace cohort::data
