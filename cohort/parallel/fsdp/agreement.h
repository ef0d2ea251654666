/// What all ranks of a call of fully_shard must have alike, compared in its first collective. A rank that has found something
/// wrong on its own tells the others there, so that nobody waits for it.
#pragma once

#include <exception>
#include <string>
#include <vector>

#include "cohort/parallel/fsdp/mesh_groups.h"

namespace cohort::fsdp {

/// One thing that must be equal, and its value here in words.
struct Fact {
  std::string name;   ///< "param_dtype"
  std::string value;  ///< "BFloat16"
};
using Facts = std::vector<Fact>;

/// Collective over all ranks that share the parameters or have a copy. `own`: why this rank cannot go on, which it throws in the
/// end; null: it can. Throws c10::Error, the same on all ranks of a group, for the first rank that cannot go on, or else for the
/// first fact of the first rank that differs from rank 0's. Ranks are named by their number in the job, if there is one.
void agree(const Facts& facts, const std::exception_ptr& own, const MeshGroups& groups);

/// A rank's number in the job; in its group where there is none.
int number_of(const Group& group, size_t rank);

}  // namespace cohort::fsdp
