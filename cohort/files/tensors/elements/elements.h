/// Converts elements of tensors in files to numbers, and back. Bytes are little-endian; they need not be aligned.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "cohort/files/tensors/elements/dtype.h"

namespace cohort::files {

/// Returns the number of real numbers in an element: 2 for complex dtypes, else 1.
int components_of(Dtype dtype);
/// Whether the dtype is float or complex, so that its elements can be averaged.
bool is_inexact(Dtype dtype);

/// Appends one number per component of an element, in the order of `bytes`. Exact, except for integers beyond 2^53. Requires
/// complete elements.
void append_numbers(Dtype dtype, std::string_view bytes, std::vector<double>& to);

/// Writes numbers as elements: each is rounded to the nearest value of the dtype, ties to even; too large ones become infinite.
/// Writes `numbers.size() / components_of(dtype)` elements. Requires a dtype of 16 bits or more that is_inexact().
void write_numbers(Dtype dtype, std::span<const double> numbers, char* to);

}  // namespace cohort::files
