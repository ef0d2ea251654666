/// A linear map of a gathered sequence-parallel input, which gathers piece by piece (mesh/gathered_product.h), and its gradients.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "cohort/parallel/tensor/group_place.h"

namespace cohort::parallel {

/// Computes linear(gather_from_region(input, dim, {.gradient = kSum}), weight, bias). `num_pieces`: an upper limit; uses as many
/// pieces as divide the size along `dim` evenly. Has first derivatives only: backward throws c10::NotImplementedError for others.
/// Not inside autocast. Collective; requires a group and an input that is not empty; all ranks must give the same number of
/// pieces.
at::Tensor gathered_linear(const at::Tensor& input, int64_t dim, const at::Tensor& weight, const at::Tensor& bias,
                           const GroupPlace& place, int64_t num_pieces);

}  // namespace cohort::parallel
