/// PowerSGD (torch/distributed/algorithms/ddp_comm_hooks/powerSGD_hook.py): a gradient matrix M travels as two thin matrices P
/// and Q with M ~ P Q^T. Paper: Vogels et al., "PowerSGD: Practical Low-Rank Gradient Compression for Distributed
/// Optimization", NeurIPS 2019.
///
///     auto state = std::make_shared<PowerSGDState>(PowerSGDOptions{.matrix_approximation_rank = 2});
///     ddp->register_comm_hook(state, power_sgd_hook);
///
/// The hook returns when the communication of the bucket has ended: on CPUs it does not overlap with backward, on a GPU it does.
#pragma once

#include <memory>

#include "cohort/export.h"
#include "cohort/parallel/ddp/hooks/power_sgd_state.h"
#include "cohort/parallel/ddp/settings/comm_hook.h"

namespace cohort::ddp {

/// Compresses each gradient by itself. Makes three all-reduces per bucket: of gradients that are not worth compressing (vectors,
/// small matrices), of all P, and of all Q. A gradient of n x m elements becomes (n + m) * rank elements.
COHORT_API CommHookFuture power_sgd_hook(const std::shared_ptr<PowerSGDState>& state, GradBucket& bucket);

/// Compresses the whole bucket as one square matrix: faster, and much less exact unless the rank is 1. Makes two all-reduces.
/// Python's hook of this name ends in an AssertionError in 2.13; this is the algorithm that it describes.
COHORT_API CommHookFuture batched_power_sgd_hook(const std::shared_ptr<PowerSGDState>& state, GradBucket& bucket);

}  // namespace cohort::ddp
