/// Runs a communication hook, and takes the result from its future.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "cohort/export.h"
#include "cohort/parallel/ddp/settings/comm_hook.h"

namespace cohort::ddp {

/// Copies a hook's result into the contents of a dense bucket, converted to its dtype. The result must have as many elements as
/// the buffer that the hook saw. Throws c10::Error for another number.
COHORT_TEST_API void copy_result(const at::Tensor& contents, const at::Tensor& result);

/// Waits, and returns the result. Throws what the hook's operation threw.
COHORT_TEST_API at::Tensor result_of(const CommHookFuture& future);

/// Waits for each, and empties the list. Throws what the first failed one threw.
COHORT_TEST_API void wait_for_all(std::vector<CommHookFuture>& futures);

/// Runs `hook`. Throws c10::Error if it returns no future.
COHORT_TEST_API CommHookFuture run_comm_hook(const CommHook& hook, GradBucket& bucket);

}  // namespace cohort::ddp
