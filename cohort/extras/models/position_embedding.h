/// Position embeddings for another number of patches.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "cohort/export.h"

namespace cohort::models {

/// `embedding` [1, 1 + n * n, width], of a class token and n x n patches -> the same of `patches_per_side` squared ones, by
/// bicubic interpolation as timm does it. Undefined if it has another shape than that.
COHORT_TEST_API at::Tensor interpolated_positions(const at::Tensor& embedding, int64_t patches_per_side);

/// n, of n * n patches; 0 if there is no such number.
int64_t side_of(int64_t num_patches);

}  // namespace cohort::models
