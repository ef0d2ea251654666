/// What the question `queued` and its ranks agree on.
#pragma once

namespace cohort::bench {

/// In a step.
inline constexpr int kQueuedOperations = 16;

}  // namespace cohort::bench
