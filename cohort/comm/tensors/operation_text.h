/// Names of tensors' properties as operations and errors show them. Pure.
#pragma once

#include <c10/core/ScalarType.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <string>

#include "cohort/export.h"

namespace cohort::comm {

/// Returns PyTorch's Python name: "float32", "bfloat16", "float8_e4m3fn".
COHORT_TEST_API std::string dtype_name(at::ScalarType dtype);
/// Returns "[2, 3]", or "[]" for a tensor without dimensions.
COHORT_TEST_API std::string shape_text(c10::IntArrayRef sizes);
/// Returns "SUM" or "PREMUL_SUM".
COHORT_TEST_API std::string reduce_op_name(const c10d::ReduceOp& op);

}  // namespace cohort::comm
