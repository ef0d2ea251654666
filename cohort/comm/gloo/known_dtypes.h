/// Gloo moves memory of nine dtypes; tensors of others are viewed as bytes, without a copy.
#pragma once

#include <vector>

#include "cohort/comm/backend/stand_ins.h"

namespace cohort::comm {

/// float32, float64, float16, bfloat16, int8, uint8, bool, int32, int64.
bool gloo_knows(at::ScalarType dtype);
/// A plain tensor as Gloo can move it.
at::Tensor as_known(const at::Tensor& plain);
std::vector<at::Tensor> as_known(std::vector<at::Tensor> plain);

}  // namespace cohort::comm
