/// The check of TORCH_NCCL_NAN_CHECK: what a rank hands in to be sent must hold no NaN.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "cohort/job/operation.h"

namespace cohort::comm {

/// True if the environment asks for the check. Throws c10::ValueError for a value that is neither true nor false.
bool nan_check_wanted();
/// Throws c10::DistBackendError naming operation, rank, how many and the first, for floating or complex tensors with NaN.
void check_for_nan(const job::Operation& operation, at::TensorList tensors);

}  // namespace cohort::comm
