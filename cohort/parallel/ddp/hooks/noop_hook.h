/// A hook that exchanges nothing (torch/distributed/algorithms/ddp_comm_hooks/debugging_hooks.py): with it a step takes the time
/// that it would take if communication cost nothing. The ranks' models drift apart, so never train with it.
#pragma once

#include <cstddef>

#include "cohort/export.h"
#include "cohort/parallel/ddp/settings/comm_hook.h"

namespace cohort::ddp {

/// ddp->register_comm_hook(nullptr, noop_hook): every rank keeps its own gradients, undivided.
COHORT_API CommHookFuture noop_hook(std::nullptr_t state, GradBucket& bucket);

}  // namespace cohort::ddp
