/// Conversions between LibTorch's dtypes and those of files.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>

#include "cohort/export.h"
#include "cohort/files/tensors/elements/dtype.h"

namespace cohort::checkpoint {

/// Absent for dtypes that no file format has, such as quantized ones.
COHORT_TEST_API std::optional<files::Dtype> file_dtype(c10::ScalarType dtype);
COHORT_TEST_API c10::ScalarType scalar_type(files::Dtype dtype);

}  // namespace cohort::checkpoint
