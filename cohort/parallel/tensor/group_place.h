/// Where a rank stands in the group whose ranks compute together, and how they share out a dimension, in words. Local.
#pragma once

#include <cstdint>
#include <string>

#include "cohort/comm/group/process_group.h"

namespace cohort::parallel {

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
std::string chunks_text(int64_t size, int64_t num_ranks);

}  // namespace cohort::parallel
