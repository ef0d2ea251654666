#include "cohort/extras/data/transforms/affine.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/grid_sampler.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/where.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "cohort/extras/data/transforms/image.h"

namespace cohort::data {
namespace {

double radians(double degrees) { return degrees * std::numbers::pi / 180.0; }

// Returns [1, height, width, 2] in the coordinates of grid_sample: -1 and 1 are the image's edges.
at::Tensor grid_of(const AffineMatrix& matrix, ImageSize from, ImageSize to) {
  at::Tensor grid = at::empty({1, to.height, to.width, 2}, at::kFloat);
  auto* place = grid.mutable_data_ptr<float>();
  for (int64_t row = 0; row < to.height; ++row) {
    const double y = static_cast<double>(row) + 0.5 - 0.5 * static_cast<double>(to.height);
    for (int64_t column = 0; column < to.width; ++column) {
      const double x = static_cast<double>(column) + 0.5 - 0.5 * static_cast<double>(to.width);
      *place++ =
          static_cast<float>((matrix[0] * x + matrix[1] * y + matrix[2]) / (0.5 * static_cast<double>(from.width)));
      *place++ =
          static_cast<float>((matrix[3] * x + matrix[4] * y + matrix[5]) / (0.5 * static_cast<double>(from.height)));
    }
  }
  return grid;
}

}  // namespace

void check_grid_interpolation(InterpolationMode interpolation, const char* who) {
  TORCH_CHECK_VALUE(interpolation != InterpolationMode::kBicubic, "[cohort] ", who,
                    " interpolates by kNearest or kBilinear, not by kBicubic");
}

AffineMatrix inverse_matrix(const AffineMap& map) {
  const double angle = radians(map.angle);
  const double shear_x = radians(map.shear[0]);
  const double shear_y = radians(map.shear[1]);
  const double a = std::cos(angle - shear_y) / std::cos(shear_y);
  const double b = -std::cos(angle - shear_y) * std::tan(shear_x) / std::cos(shear_y) - std::sin(angle);
  const double c = std::sin(angle - shear_y) / std::cos(shear_y);
  const double d = -std::sin(angle - shear_y) * std::tan(shear_x) / std::cos(shear_y) + std::cos(angle);
  const auto [center_x, center_y] = map.center;
  const double x = -center_x - map.translate[0];
  const double y = -center_y - map.translate[1];
  return {d, -b, d * x - b * y + center_x, -c, a, -c * x + a * y + center_y};
}

ImageSize size_of_all(const AffineMatrix& matrix, ImageSize size) {
  // As _compute_affine_output_size, in float32 as there: a smaller part of a pixel does not count.
  constexpr float kTolerance = 1e-4F;
  const double half_width = 0.5 * static_cast<double>(size.width);
  const double half_height = 0.5 * static_cast<double>(size.height);
  std::array<float, 2> least = {INFINITY, INFINITY};
  std::array<float, 2> most = {-INFINITY, -INFINITY};
  for (const double x : {-half_width, half_width}) {
    for (const double y : {-half_height, half_height}) {
      const std::array<double, 2> corner = {matrix[0] * x + matrix[1] * y + matrix[2] + half_width,
                                            matrix[3] * x + matrix[4] * y + matrix[5] + half_height};
      for (int i = 0; i < 2; ++i) {
        least[i] = std::min(least[i], static_cast<float>(corner[i]));
        most[i] = std::max(most[i], static_cast<float>(corner[i]));
      }
    }
  }
  const auto whole = [](float place) { return std::trunc(place / kTolerance) * kTolerance; };
  const auto length = [&](int i) {
    return static_cast<int64_t>(std::ceil(whole(most[i])) - std::floor(whole(least[i])));
  };
  return {length(1), length(0)};
}

at::Tensor move_pixels(const at::Tensor& image, const AffineMatrix& matrix, InterpolationMode interpolation,
                       std::optional<double> fill, ImageSize size) {
  const bool is_nearest = interpolation == InterpolationMode::kNearest;
  at::Tensor pixels = image.to(image.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  // An additional channel of ones tells how much of a pixel comes from the image.
  if (fill) pixels = at::cat({pixels, at::ones({1, image.size(1), image.size(2)}, pixels.options())});
  const at::Tensor grid = grid_of(matrix, {height_of(image), width_of(image)}, size).to(pixels.scalar_type());
  at::Tensor moved = at::grid_sampler(pixels.unsqueeze(0), grid, /*interpolation_mode=*/is_nearest ? 1 : 0,
                                      /*padding_mode=*/0, /*align_corners=*/false)
                         .squeeze(0);
  if (fill) {
    const at::Tensor share = moved.narrow(0, image.size(0), 1);
    moved = moved.narrow(0, 0, image.size(0));
    moved = is_nearest ? at::where(share.lt(0.5), *fill, moved) : moved * share + (1.0 - share) * *fill;
  }
  return image.is_floating_point() ? moved.to(image.scalar_type()) : moved.round_().to(at::kByte);
}

}  // namespace cohort::data
