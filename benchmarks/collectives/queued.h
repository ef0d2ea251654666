/// Constants of the question `queued` and its ranks.
#pragma once

namespace cohort::bench {

/// Operations per step.
inline constexpr int kQueuedOperations = 16;

}  // namespace cohort::bench
