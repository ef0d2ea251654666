/// Explains a failed operation: which rank is gone, or that a time-out passed, and what to do.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "cohort/comm/peers.h"
#include "cohort/comm/tracked_work.h"

namespace cohort::comm {

/// `ranks`: default-group ranks of the group. The explainer waits up to a second for the operating system to show a process
/// as gone whose connection has just been closed.
std::shared_ptr<const FailureExplainer> make_explainer(std::shared_ptr<Peers> peers, std::vector<int> ranks,
                                                       std::chrono::milliseconds timeout);

}  // namespace cohort::comm
