/// Divides things of which every rank of a group must have the same number: attention heads, positions of a sequence. Local.
#pragma once

#include <cstdint>
#include <string>

#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"

namespace cohort::parallel {

/// Divides `size` evenly over the ranks of `group` (if null, the default group; 1 rank before init_process_group) and returns
/// each rank's share. `what` is plural: "attention heads". Throws c10::ValueError, with the division, if there is a remainder or
/// a rank gets none.
COHORT_API int64_t divided(int64_t size, const std::string& what, const Group& group = {});

}  // namespace cohort::parallel

// Old names, until the next release.
namespace cohort {
using parallel::divided;
}  // namespace cohort
