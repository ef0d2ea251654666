/// Decides whether a group can use the backend "shm", from its ranks' descriptions of themselves. Pure, and the same on all
/// ranks.
#pragma once

#include <string>
#include <vector>

#include "cohort/job/arrival.h"

namespace cohort::job {

/// Returns the reasons against it, one line per rank, such as "rank 2 is on another host (node-b)". Empty if the group can use
/// it.
std::vector<std::string> obstacles_to_shm(const std::vector<Arrival>& members);

/// Returns the failure of a group that asked for "shm" by name.
Failure shm_refusal(const std::string& group, const std::vector<std::string>& obstacles);

}  // namespace cohort::job
