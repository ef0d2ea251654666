/// Agreement: whether all ranks mean the same by a call and can do their part of it, settled before tensors travel, so that no
/// rank waits for one that has refused or does something else.
///
///     agree({.function = "fully_shard", .outcome = "nothing was sharded", .facts = {{"param_dtype", "BFloat16"}}}, {group});
#pragma once

#include <exception>
#include <string>
#include <vector>

#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"

namespace cohort::comm {

/// One thing that must be equal, and its value here in words.
struct Fact {
  std::string name;   ///< "param_dtype"
  std::string value;  ///< "BFloat16"
};
using Facts = std::vector<Fact>;

/// What one rank brings to an agreement.
struct Claim {
  std::string function;   ///< the one that the program has called; a fact, too
  std::string outcome;    ///< what errors say of it: "nothing was set"
  std::string hint = {};  ///< where ranks differ
  /// Compared one by one, in this order, which is the same on all ranks.
  Facts facts = {};
  /// Each compared, by its name, among the ranks that have it.
  Facts shared_facts = {};
  /// Why this rank cannot go on; it may have fewer facts then. Null: it can.
  std::exception_ptr failure = {};
  /// What this rank throws if it has failed. False: what others throw, unless all have failed alike.
  bool throws_own_failure = false;
};

/// Collective over the groups, one after the other; null ones do not count. What one group has told, the next one hears. Enters
/// `last` only where the ranks of `groups` do not differ. Throws on all ranks: c10::ValueError for the first fact that differs,
/// with who has which value; or else what `failure` is, if it is the same on all ranks; or else RankError with the reasons of
/// those that cannot go on. Ranks are named by their number in the job, if there is one.
COHORT_TEST_API void agree(const Claim& own, const std::vector<Group>& groups, const Group& last = {});

/// A rank's number in the job; in its group where there is none.
int number_in_job(const Group& group, int rank);
/// Of all ranks of the group.
std::vector<int> numbers_in_job(const Group& group);

}  // namespace cohort::comm
