/// How a dimension is shared out over the ranks of a group, and what is said where that does not work. Local.
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

namespace parallel {

/// A group and where this rank stands in it.
struct GroupPlace {
  Group group;  ///< null: this rank is alone
  int64_t rank = 0;
  int64_t num_ranks = 1;
};

/// Null: the default group; without one this rank is alone, so that a model runs in one process too.
/// Throws c10::ValueError on a rank outside the group.
GroupPlace place_in(const Group& group);

/// "4 ranks".
std::string ranks_text(int64_t num_ranks);
/// How torch.chunk shares out: "ceil(10 / 4) = 3 for each of 4 ranks, so they have 3, 3, 3, 1".
COHORT_TEST_API std::string chunks_text(int64_t size, int64_t num_ranks);

}  // namespace parallel
}  // namespace cohort
