/// Runs a communication hook, and takes what its future brings.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "cohort/export.h"
#include "cohort/parallel/ddp/settings/comm_hook.h"

namespace cohort::ddp {

/// What a hook has made of a dense bucket becomes its contents, converted to its dtype: as many elements as the buffer had that
/// the hook saw. Throws c10::Error for another number.
COHORT_TEST_API void copy_result(const at::Tensor& contents, const at::Tensor& result);

/// Waits. Throws what the hook's operation threw.
COHORT_TEST_API at::Tensor result_of(const CommHookFuture& future);

/// Waits for each, and empties the list. Throws what the first that failed threw.
COHORT_TEST_API void wait_for_all(std::vector<CommHookFuture>& futures);

/// Runs `hook`. Throws c10::Error when it gives no future.
COHORT_TEST_API CommHookFuture run_comm_hook(const CommHook& hook, GradBucket& bucket);

}  // namespace cohort::ddp
