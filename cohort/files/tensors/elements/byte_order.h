/// Elements that were written in the other byte order.
#pragma once

#include <cstddef>
#include <span>

#include "cohort/files/tensors/elements/dtype.h"

namespace cohort::files {

/// Turns the bytes of each number around; of a complex element, of each half. Bytes of an element that `bytes` has only a part of
/// stay.
void swap_byte_order(std::span<char> bytes, Dtype dtype);

}  // namespace cohort::files
