/// A linear map of what is gathered from a sequence-parallel region, with the gather in pieces (mesh/gathered_product.h), and its
/// gradients.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "cohort/parallel/tensor/group_place.h"

namespace cohort::parallel {

/// linear(gather_from_region(input, dim, {.gradient = kSum}), weight, bias). `num_pieces`: at most so many, as many as divide the
/// size along `dim` evenly. First derivatives only: backward throws c10::NotImplementedError for others. Not in a region of
/// autocast. Collective, of a group that is not null and an input that is not empty; all ranks give the same number of pieces.
at::Tensor gathered_linear(const at::Tensor& input, int64_t dim, const at::Tensor& weight, const at::Tensor& bias,
                           const GroupPlace& place, int64_t num_pieces);

}  // namespace cohort::parallel
