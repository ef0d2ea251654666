/// Finds out why an operation failed, from the processes of this host's ranks and from the reports of all ranks.
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

/// Examines the members of one group. `ranks`: their default-group ranks, in group order; `rank`: this process's in the group.
class Diagnostician {
 public:
  Diagnostician(const Peers& peers, const Reports& reports, const std::vector<int>& ranks, int rank)
      : peers_(peers), reports_(reports), ranks_(ranks), rank_(rank) {}

  /// Returns the members that `operation` needs and whose process is gone, as default-group ranks; never this rank.
  std::vector<int> lost_members(const job::Operation& operation) const;
  /// `purpose`: the purpose of the operation that needs them.
  base::Failure lost(const std::vector<int>& members, std::string_view purpose) const;
  /// `mine` and `theirs`: the calls number `sequence` of this rank and of `member` (a group rank).
  base::Failure mismatch(uint64_t sequence, int member, const std::string& mine, const std::string& theirs) const;
  /// Returns a failure if a member among `candidates` (group ranks) has called something else than this rank.
  std::optional<base::Failure> disagreement(const job::Account& mine, const std::vector<int>& candidates) const;
  /// Returns a failure if a member failed before this rank did.
  std::optional<base::Failure> earlier_failure(const job::Operation& operation,
                                               std::chrono::milliseconds timeout) const;
  /// Returns, after a timeout, which ranks are missing, and what they do instead.
  base::Failure timed_out(const job::Operation& operation, std::chrono::milliseconds timeout) const;
  /// Adds to an engine's failure what the missing ranks do instead.
  base::Failure complete(const job::Operation& operation, base::Failure failure) const;
  /// Returns all members except this one, as group ranks.
  std::vector<int> others() const;

 private:
  /// Returns the members that `operation` waits for, as group ranks.
  std::vector<int> needed(const job::Operation& operation) const;
  std::string describe(int group_rank) const { return peers_.describe(ranks_[group_rank]); }
  /// The other activity of a member that has not come to the operation.
  struct Occupation {
    /// "is asleep", "waits in broadcast #3 on group \"dp\""; empty if it waits in the same operation.
    std::string text;
    std::optional<base::ProcessActivity> activity;
  };
  /// Adds the members that a signal has stopped: while they are stopped, no other hint helps.
  base::Failure with_stopped(base::Failure failure) const;
  Occupation occupation_of(int group_rank, const job::Operation& operation) const;
  static std::string hint_for(const std::vector<Occupation>& occupations, std::chrono::milliseconds timeout);

  const Peers& peers_;
  const Reports& reports_;
  const std::vector<int>& ranks_;
  int rank_;
};

}  // namespace cohort::comm
