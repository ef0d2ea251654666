/// Gloo moves memory of nine dtypes; tensors of others are viewed as bytes, without a copy.
#pragma once

#include <vector>

#include "cohort/comm/tensors/contiguous_copies.h"

namespace cohort::comm {

/// Whether the dtype is float32, float64, float16, bfloat16, int8, uint8, bool, int32 or int64.
bool gloo_knows(at::ScalarType dtype);
/// Returns a plain tensor in a dtype that Gloo can move.
at::Tensor as_known(const at::Tensor& plain);
std::vector<at::Tensor> as_known(std::vector<at::Tensor> plain);

}  // namespace cohort::comm
