/// Why an operation failed, from what the other ranks of this host look like and what all ranks reported.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/comm/watch/peers.h"
#include "cohort/comm/watch/reports.h"
#include "cohort/job/failure.h"
#include "cohort/job/operation.h"
#include "cohort/job/operation_log.h"

namespace cohort::comm {

/// Looks at the members of one group. `ranks`: their default-group ranks, in group order; `rank`: this process's in the group.
class Diagnostician {
 public:
  Diagnostician(const Peers& peers, const Reports& reports, const std::vector<int>& ranks, int rank)
      : peers_(peers), reports_(reports), ranks_(ranks), rank_(rank) {}

  /// Members that `operation` needs and whose process is gone; never this one. As default-group ranks.
  std::vector<int> lost_members(const job::Operation& operation) const;
  /// `purpose`: of the operation that needs them.
  base::Failure lost(const std::vector<int>& members, std::string_view purpose) const;
  /// `mine` and `theirs`: what this rank and `member` (a group rank) called as number `sequence`.
  base::Failure mismatch(uint64_t sequence, int member, const std::string& mine, const std::string& theirs) const;
  /// A member that called something else than this rank, among `candidates` (group ranks).
  std::optional<base::Failure> disagreement(const job::Account& mine, const std::vector<int>& candidates) const;
  /// A member that failed before this rank did.
  std::optional<base::Failure> earlier_failure(const job::Operation& operation,
                                               std::chrono::milliseconds timeout) const;
  /// After a time-out: who is not there, and what it does instead.
  base::Failure timed_out(const job::Operation& operation, std::chrono::milliseconds timeout) const;
  /// What an engine knows, with what the missing ranks do instead.
  base::Failure complete(const job::Operation& operation, base::Failure failure) const;
  /// All members but this one, as group ranks.
  std::vector<int> others() const;

 private:
  /// The members that `operation` waits for, as group ranks.
  std::vector<int> needed(const job::Operation& operation) const;
  std::string describe(int group_rank) const { return peers_.describe(ranks_[group_rank]); }
  /// What a member does instead.
  struct Occupation {
    /// "is asleep", "waits in broadcast #3 on group \"dp\""; empty if it waits in the same operation.
    std::string text;
    std::optional<base::ProcessActivity> activity;
  };
  /// Adds the members that a signal has stopped: with one of them, no other hint helps.
  base::Failure with_stopped(base::Failure failure) const;
  Occupation occupation_of(int group_rank, const job::Operation& operation) const;
  static std::string hint_for(const std::vector<Occupation>& occupations, std::chrono::milliseconds timeout);

  const Peers& peers_;
  const Reports& reports_;
  const std::vector<int>& ranks_;
  int rank_;
};

}  // namespace cohort::comm
