/// Elements of tensors in files as numbers, and back. Bytes are little-endian; they need not be aligned.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "cohort/files/tensors/elements/dtype.h"

namespace cohort::files {

/// How many real numbers an element is: 2 for complex dtypes, else 1.
int components_of(Dtype dtype);
/// True for the float and complex dtypes, whose elements can be averaged.
bool is_inexact(Dtype dtype);

/// One number per component of an element, in the order of `bytes`. Exact, but for integers beyond 2^53.
/// Requires: whole elements.
void append_numbers(Dtype dtype, std::string_view bytes, std::vector<double>& to);

/// The inverse: each number becomes the nearest one that the dtype has, ties to even; too large ones become infinite.
/// Writes `numbers.size() / components_of(dtype)` elements. Requires: a dtype of 16 bits or more that is_inexact().
void write_numbers(Dtype dtype, std::span<const double> numbers, char* to);

}  // namespace cohort::files
