/// Converts elements in the other byte order.
#pragma once

#include <cstddef>
#include <span>

#include "cohort/files/tensors/elements/dtype.h"

namespace cohort::files {

/// Reverses the bytes of each number; of a complex element, of each half. Leaves an incomplete last element as it is.
void swap_byte_order(std::span<char> bytes, Dtype dtype);

}  // namespace cohort::files
