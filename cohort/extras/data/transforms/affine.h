/// Applies affine maps to images, as torchvision.transforms.functional (functional.py's _get_inverse_affine_matrix,
/// _functional_tensor.py's _gen_affine_grid and _apply_grid_transform). Private to this folder.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>

#include "cohort/export.h"
#include "cohort/extras/data/transforms/resize.h"

namespace cohort::data {

struct AffineMap {
  /// In degrees, clockwise.
  double angle = 0;
  /// In pixels, to the right and down.
  std::array<double, 2> translate = {0, 0};
  /// In degrees, along x and y.
  std::array<double, 2> shear = {0, 0};
  /// From the image's middle, to the right and down.
  std::array<double, 2> center = {0, 0};
};

/// The source of the pixel at (x, y) of the result, both from the middle: (m0 x + m1 y + m2, m3 x + m4 y + m5).
using AffineMatrix = std::array<double, 6>;
AffineMatrix inverse_matrix(const AffineMap& map);

/// Returns the size that contains a whole image of `size` after the map whose inverse is `matrix`.
ImageSize size_of_all(const AffineMatrix& matrix, ImageSize size);

/// Requires kNearest or kBilinear. `fill`: for pixels outside the image. If absent, zeros, with which edges blend.
COHORT_TEST_API at::Tensor move_pixels(const at::Tensor& image, const AffineMatrix& matrix,
                                       InterpolationMode interpolation, std::optional<double> fill, ImageSize size);

/// Throws c10::ValueError for kBicubic, which torchvision does not support for tensors either. `who`: named in the error.
void check_grid_interpolation(InterpolationMode interpolation, const char* who);

}  // namespace cohort::data
