#include "cohort/extras/data/augmentation/color_jitter.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>

#include "cohort/extras/data/transforms/color.h"
#include "cohort/extras/data/transforms/image.h"

namespace cohort::data {
namespace {

using Bounds = std::optional<std::array<double, 2>>;

Bounds check_jitter(const JitterRange& range, const char* name, double center, std::array<double, 2> limits) {
  TORCH_CHECK_VALUE(range.bounds || range.around >= 0, "If ", name, " is a single number, it must be non negative.");
  std::array<double, 2> bounds = range.bounds.value_or(std::array{center - range.around, center + range.around});
  if (!range.bounds && center == 1.0) bounds[0] = std::max(bounds[0], 0.0);
  TORCH_CHECK_VALUE(limits[0] <= bounds[0] && bounds[0] <= bounds[1] && bounds[1] <= limits[1], name,
                    " values should be between (", limits[0], ", ", limits[1], "), but got (", bounds[0], ", ",
                    bounds[1], ").");
  if (bounds[0] == center && bounds[1] == center) return std::nullopt;
  return bounds;
}

using Adjust = at::Tensor (*)(const at::Tensor&, double);
constexpr std::array<Adjust, 4> kAdjust = {adjust_brightness, adjust_contrast, adjust_saturation, adjust_hue};

}  // namespace

ColorJitter::ColorJitter(const ColorJitterOptions& options)
    : bounds_{check_jitter(options.brightness, "brightness", 1.0, {0.0, INFINITY}),
              check_jitter(options.contrast, "contrast", 1.0, {0.0, INFINITY}),
              check_jitter(options.saturation, "saturation", 1.0, {0.0, INFINITY}),
              check_jitter(options.hue, "hue", 0.0, {-0.5, 0.5})} {}

at::Tensor ColorJitter::operator()(const at::Tensor& image, SampleRandom& random) const {
  check_image(image, "ColorJitter");
  check_channels(image);
  const std::vector<int64_t> order = random.permutation(static_cast<int64_t>(kAdjust.size()));
  std::array<double, kAdjust.size()> factors{};
  for (size_t i = 0; i < factors.size(); ++i) {
    if (bounds_[i]) factors[i] = random.uniform((*bounds_[i])[0], (*bounds_[i])[1]);
  }
  at::Tensor result = image;
  for (const int64_t i : order) {
    if (bounds_[i]) result = kAdjust[i](result, factors[i]);
  }
  return result;
}

}  // namespace cohort::data
