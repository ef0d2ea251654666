/// The hook that does what DistributedDataParallel does without one (torch/distributed/algorithms/ddp_comm_hooks/
/// default_hooks.py): to be taken as an example, or called by hooks that add something.
#pragma once

#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"
#include "cohort/parallel/ddp/settings/comm_hook.h"

namespace cohort::ddp {

/// Divides the bucket by the number of ranks and all-reduces it over `group` (null: the default group).
COHORT_API CommHookFuture allreduce_hook(const Group& group, GradBucket& bucket);

/// The same for any tensor, in place. Throws c10::ValueError on a rank outside the group.
COHORT_API CommHookFuture all_reduce_average(const Group& group, const at::Tensor& tensor);

/// `group`, or the default group for null. Throws c10::ValueError if this rank is not a member.
Group group_of_hook(const Group& group);

}  // namespace cohort::ddp
