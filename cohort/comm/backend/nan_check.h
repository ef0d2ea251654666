/// The check of TORCH_NCCL_NAN_CHECK: tensors that a rank sends must not contain NaN.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "cohort/job/operation.h"

namespace cohort::comm {

/// Whether the environment asks for the check. Throws c10::ValueError for a value that is neither true nor false.
bool nan_check_wanted();
/// Throws c10::DistBackendError for floating or complex tensors with NaN. Names operation, rank, number of NaNs and the first.
void check_for_nan(const job::Operation& operation, at::TensorList tensors);

}  // namespace cohort::comm
