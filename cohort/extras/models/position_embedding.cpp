#include "cohort/extras/models/position_embedding.h"

#include <ATen/ops/_upsample_bicubic2d_aa.h>
#include <ATen/ops/cat.h>

#include <cmath>

namespace cohort::models {

int64_t side_of(int64_t num_patches) {
  const auto side = static_cast<int64_t>(std::llround(std::sqrt(static_cast<double>(num_patches))));
  return side * side == num_patches ? side : 0;
}

at::Tensor interpolated_positions(const at::Tensor& embedding, int64_t patches_per_side) {
  if (embedding.dim() != 3 || embedding.size(0) != 1 || embedding.size(1) < 2) return {};
  const int64_t num_patches = embedding.size(1) - 1, side = side_of(num_patches);
  if (side == 0) return {};
  const at::Tensor grid = embedding.narrow(1, 1, num_patches)
                              .to(at::kFloat)
                              .reshape({1, side, side, embedding.size(2)})
                              .permute({0, 3, 1, 2});
  const at::Tensor resized =
      at::_upsample_bicubic2d_aa(grid, {patches_per_side, patches_per_side}, /*align_corners=*/false)
          .permute({0, 2, 3, 1})
          .reshape({1, patches_per_side * patches_per_side, embedding.size(2)})
          .to(embedding.scalar_type());
  return at::cat({embedding.narrow(1, 0, 1), resized}, 1);
}

}  // namespace cohort::models
