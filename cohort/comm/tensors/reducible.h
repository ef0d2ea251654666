/// The combinations of ReduceOp and dtype that work, the same for all backends.
#pragma once

#include <c10/core/ScalarType.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <optional>

namespace cohort::comm {

/// Returns: the factor of PREMUL_SUM, absent for other operations. Throws c10::ValueError, naming op and dtype, for what can
/// never work: bitwise operations on floats, MIN, MAX and PRODUCT of complex numbers, AVG of bool, a fractional factor for
/// integers.
std::optional<double> check_reducible(const char* operation, const c10d::ReduceOp& op, at::ScalarType dtype);

}  // namespace cohort::comm
