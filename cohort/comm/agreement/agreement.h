/// Agreement: checks, before tensors travel, that all ranks mean the same by a call and can do their part of it. So no rank waits
/// for another one that has refused or does something else.
///
///     agree({.function = "fully_shard", .outcome = "nothing was sharded", .facts = {{"param_dtype", "BFloat16"}}}, {group});
#pragma once

#include <exception>
#include <string>
#include <vector>

#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"

namespace cohort::comm {

/// A property that must be equal on all ranks, and its value on this rank as text.
struct Fact {
  std::string name;   ///< "param_dtype"
  std::string value;  ///< "BFloat16"
};
using Facts = std::vector<Fact>;

/// The input of one rank to an agreement.
struct Claim {
  std::string function;   ///< the function that the program has called; compared as a fact, too
  std::string outcome;    ///< how errors describe the result: "nothing was set"
  std::string hint = {};  ///< the error's hint if ranks differ
  /// Compared one by one, in this order, which is the same on all ranks.
  Facts facts = {};
  /// Compared by name, each among the ranks that have it.
  Facts shared_facts = {};
  /// The reason why this rank cannot go on; it may have fewer facts then. If null, it can go on.
  std::exception_ptr failure = {};
  /// If true, a failed rank throws its own failure. If false, it throws what the others throw, unless all have failed alike.
  bool throws_own_failure = false;
};

/// Compares the claims of all ranks. Collective over the groups, one after the other; null groups are skipped. Each group also
/// learns what the groups before it have found. Enters `last` only if the ranks of `groups` do not differ. Throws on all ranks:
/// c10::ValueError for the first fact that differs, with each rank's value; otherwise `failure`, if it is the same on all ranks;
/// otherwise RankError with the reasons of the ranks that cannot go on. Errors name ranks by number_in_job().
COHORT_TEST_API void agree(const Claim& own, const std::vector<Group>& groups, const Group& last = {});

/// Returns a rank's number in the job, or in its group if this process has joined no job.
int number_in_job(const Group& group, int rank);
/// Returns the numbers of all ranks of the group.
std::vector<int> numbers_in_job(const Group& group);

}  // namespace cohort::comm
