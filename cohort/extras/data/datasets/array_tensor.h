/// Converts arrays of the layer files to tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include "cohort/extras/files/arrays/array_data.h"

namespace cohort::data::detail {

at::ScalarType scalar_type_of(files::DType dtype);

/// Returns a contiguous tensor that owns the array's memory, without copying.
at::Tensor to_tensor(files::ArrayData array);

}  // namespace cohort::data::detail
