#include "cohort/extras/data/transforms/rotation.h"

#include <c10/util/Exception.h>

#include "cohort/extras/data/transforms/affine.h"
#include "cohort/extras/data/transforms/image.h"

namespace cohort::data {
namespace {

void check_options(const RotationOptions& options) {
  check_grid_interpolation(options.interpolation, "RandomRotation");
  TORCH_CHECK_VALUE(
      !options.expand || !options.center,
      "[cohort] RandomRotation with expand turns around the middle: center and expand do not go together");
}

std::array<double, 2> around_zero(double degrees) {
  TORCH_CHECK_VALUE(degrees >= 0, "If degrees is a single number, it must be positive.");
  return {-degrees, degrees};
}

}  // namespace

RandomRotation::RandomRotation(double degrees, RotationOptions options)
    : RandomRotation(around_zero(degrees), options) {}

RandomRotation::RandomRotation(std::array<double, 2> degrees, RotationOptions options)
    : degrees_(degrees), options_(options) {
  check_options(options_);
}

at::Tensor RandomRotation::operator()(const at::Tensor& image, SampleRandom& random) const {
  return rotate_image(image, random.uniform(degrees_[0], degrees_[1]), options_);
}

at::Tensor rotate_image(const at::Tensor& image, double angle, const RotationOptions& options) {
  check_image(image, "RandomRotation");
  check_options(options);
  const ImageSize size(height_of(image), width_of(image));
  AffineMap map{.angle = -angle};
  if (options.center) {
    map.center = {(*options.center)[0] - 0.5 * static_cast<double>(size.width),
                  (*options.center)[1] - 0.5 * static_cast<double>(size.height)};
  }
  const AffineMatrix matrix = inverse_matrix(map);
  return move_pixels(image, matrix, options.interpolation, options.fill,
                     options.expand ? size_of_all(matrix, size) : size);
}

}  // namespace cohort::data
