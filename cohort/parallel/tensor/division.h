/// What every rank of a group must have the same number of: attention heads, positions of a sequence. Local.
#pragma once

#include <cstdint>
#include <string>

#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"

namespace cohort {

/// `size` over the ranks of `group` (null: the default group; 1 rank before init_process_group): each rank's share, where all
/// must have the same: attention heads, positions of a sequence.
/// `what` is plural: "attention heads". Throws c10::ValueError with the division, if it leaves a rest or a rank without any.
COHORT_API int64_t divided(int64_t size, const std::string& what, const Group& group = {});

}  // namespace cohort
