/// Sends gradients in half precision (torch/distributed/algorithms/ddp_comm_hooks/default_hooks.py): half the bytes, less
/// precision.
#pragma once

#include <c10/core/ScalarType.h>

#include <utility>

#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"
#include "cohort/parallel/ddp/settings/comm_hook.h"

namespace cohort::ddp {

/// Converts the bucket to float16, divides it by the number of ranks, all-reduces it over `group` (if null, the default group),
/// and converts the sum back.
COHORT_API CommHookFuture fp16_compress_hook(const Group& process_group, GradBucket& bucket);
/// The same with bfloat16. Python's hook needs a GPU; this one runs on every backend.
COHORT_API CommHookFuture bf16_compress_hook(const Group& process_group, GradBucket& bucket);

/// Lets `hook` see the bucket converted to `dtype`. Its result stays in `dtype` until it replaces the bucket.
COHORT_API CommHookFuture compress_around(c10::ScalarType dtype, GradBucket& bucket, const CommHook& hook);

/// Wraps `hook`, which takes a state and a bucket, so that it gets the bucket in float16:
/// ddp->register_comm_hook(state, fp16_compress_wrapper(power_sgd_hook)).
template <class Hook>
auto fp16_compress_wrapper(Hook hook) {
  return [hook = std::move(hook)](auto& state, GradBucket& bucket) mutable {
    return compress_around(c10::kHalf, bucket, [&](GradBucket& narrow) { return hook(state, narrow); });
  };
}

template <class Hook>
auto bf16_compress_wrapper(Hook hook) {
  return [hook = std::move(hook)](auto& state, GradBucket& bucket) mutable {
    return compress_around(c10::kBFloat16, bucket, [&](GradBucket& narrow) { return hook(state, narrow); });
  };
}

}  // namespace cohort::ddp
