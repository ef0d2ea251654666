/// Interpolates position embeddings for another number of patches.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "cohort/export.h"

namespace cohort::models {

/// Interpolates `embedding` [1, 1 + n * n, width], of a class token and n x n patches, to patches_per_side * patches_per_side
/// patches, bicubically as timm. Returns an undefined tensor for other shapes.
COHORT_TEST_API at::Tensor interpolated_positions(const at::Tensor& embedding, int64_t patches_per_side);

/// Returns n for n * n patches; 0 for other numbers.
int64_t side_of(int64_t num_patches);

}  // namespace cohort::models
