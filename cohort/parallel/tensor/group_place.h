/// The place of a rank in the group whose ranks compute together, and texts about sharding a dimension. Local.
#pragma once

#include <cstdint>
#include <string>

#include "cohort/comm/group/process_group.h"

namespace cohort::parallel {

/// A group and this rank's place in it.
struct GroupPlace {
  Group group;  ///< null if this rank is alone
  int64_t rank = 0;
  int64_t num_ranks = 1;
};

/// `group`: if null, the default group; without one this rank is alone, so that a model also runs in one process. Throws
/// c10::ValueError on a rank outside the group.
GroupPlace place_in(const Group& group);

/// Returns a text such as "4 ranks".
std::string ranks_text(int64_t num_ranks);
/// Describes the division by torch.chunk: "ceil(10 / 4) = 3 for each of 4 ranks, so they have 3, 3, 3, 1".
std::string chunks_text(int64_t size, int64_t num_ranks);

}  // namespace cohort::parallel
