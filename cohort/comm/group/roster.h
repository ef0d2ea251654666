/// Roster: the members of a job, from what its ranks wrote to the store when they came, and the failures that they report. One
/// for all groups of the job.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cohort/comm/start/membership_check.h"
#include "cohort/comm/watch/peers.h"
#include "cohort/comm/watch/process_watch.h"
#include "cohort/comm/watch/reports.h"

namespace cohort::comm {

/// `ranks` are always ranks of the job. Thread-safety: const after construction, besides collect() and await().
class Roster : public std::enable_shared_from_this<Roster> {
 public:
  /// Makes a membership check. Collective. Blocks until every rank of the job has come; throws as check_membership.
  static std::shared_ptr<Roster> by_membership_check(const MembershipCheck& check);
  /// Writes this process's entry and does not wait: for ranks without the sign of life that a membership check needs.
  static std::shared_ptr<Roster> unannounced(const c10::intrusive_ptr<c10d::Store>& store, int rank, int world_size);
  /// Reads what the others have written so far, in a job without a membership check.
  void collect() { peers_->collect(); }
  /// Waits a while for the entries of these ranks, in such a job: some backends let a rank go on alone, so others may write late.
  void await(const std::vector<int>& ranks) { peers_->await(ranks); }

  const Peers& peers() const { return *peers_; }
  /// Returns the store with the entries: the store of the job's first group.
  const c10::intrusive_ptr<c10d::Store>& store() const { return store_; }
  /// Returns process ids; empty if one of them is not known.
  std::vector<int> pids(const std::vector<int>& ranks) const;
  /// Returns why these ranks cannot share memory (shm_choice.h); empty if they can.
  std::vector<std::string> shm_obstacles(const std::vector<int>& ranks) const;
  /// Returns a watch of one group's operations. It keeps the roster.
  std::shared_ptr<OperationWatch> watch(WatchedGroup group);

 private:
  Roster(std::shared_ptr<Peers> peers, const c10::intrusive_ptr<c10d::Store>& store, int rank, int world_size);
  std::vector<job::Arrival> arrivals(const std::vector<int>& ranks) const;

  const c10::intrusive_ptr<c10d::Store> store_;
  const std::shared_ptr<Peers> peers_;
  const std::shared_ptr<Reports> reports_;
};

}  // namespace cohort::comm
