/// Whether a group can be made of the backend "shm", from what its ranks said when they came. Pure, the same on all ranks.
#pragma once

#include <string>
#include <vector>

#include "cohort/job/arrival.h"

namespace cohort::job {

/// Why not, one line per rank that is in the way, such as "rank 2 is on another host (node-b)"; empty: they can.
std::vector<std::string> obstacles_to_shm(const std::vector<Arrival>& members);

/// Of a group that asked for "shm" by name.
Failure shm_refusal(const std::string& group, const std::vector<std::string>& obstacles);

}  // namespace cohort::job
