/// Sends gradients as 8-bit integers (torch/distributed/algorithms/ddp_comm_hooks/quantization_hooks.py): every rank gathers all
/// ranks' scales and zero points, then all ranks' integers, and averages them itself. An all-gather moves more than an
/// all-reduce: this is faster only with few ranks. Scales and zero points are those of PyTorch's MinMaxObserver and
/// PerChannelMinMaxObserver (quint8).
#pragma once

#include <cstdint>

#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"
#include "cohort/parallel/ddp/settings/comm_hook.h"

namespace cohort::ddp {

/// Uses one scale and zero point for the bucket. `group`: if null, the default group. All communication has ended when the hook
/// returns.
/// Throws c10::Error for gradients that are NaN.
COHORT_API CommHookFuture quantization_pertensor_hook(const Group& process_group, GradBucket& bucket);

/// Uses one scale and zero point for every 512 elements of the bucket.
COHORT_API CommHookFuture quantization_perchannel_hook(const Group& process_group, GradBucket& bucket);
/// The same for every `bucket_size` elements. Register it with a lambda, since a hook has two arguments.
COHORT_API CommHookFuture quantization_perchannel_hook_of_size(const Group& process_group, GradBucket& bucket,
                                                               int64_t bucket_size);

}  // namespace cohort::ddp
