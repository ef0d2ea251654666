/// The hook that does the same as DistributedDataParallel without a hook
/// (torch/distributed/algorithms/ddp_comm_hooks/default_hooks.py): an example, and for hooks that add something to it.
#pragma once

#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"
#include "cohort/parallel/ddp/settings/comm_hook.h"

namespace cohort::ddp {

/// Divides the bucket by the number of ranks and all-reduces it over `group` (if null, the default group).
COHORT_API CommHookFuture allreduce_hook(const Group& process_group, GradBucket& bucket);

/// The same for any tensor, in place. Throws c10::ValueError on a rank outside the group.
COHORT_API CommHookFuture all_reduce_average(const Group& group, const at::Tensor& tensor);

/// Returns `group`, or the default group if it is null. Throws c10::ValueError if this rank is not a member.
Group group_of_hook(const Group& group);

}  // namespace cohort::ddp
