/// Roster: who is in a job, from what its ranks wrote into the store when they came, and what they report of failures. One
/// for all groups of the job.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cohort/comm/start/roll_call.h"
#include "cohort/comm/watch/peers.h"
#include "cohort/comm/watch/process_watch.h"
#include "cohort/comm/watch/reports.h"

namespace cohort::comm {

/// `ranks` are always ranks of the job. Thread-safety: const after construction, besides collect() and await().
class Roster : public std::enable_shared_from_this<Roster> {
 public:
  /// Collective. Blocks until every rank of the job has come; throws as call_roll.
  static std::shared_ptr<Roster> by_roll_call(const RollCall& call);
  /// Writes this process's entry and waits for nobody: for ranks that give no sign of life which a roll call knows.
  static std::shared_ptr<Roster> unannounced(const c10::intrusive_ptr<c10d::Store>& store, int rank, int world_size);
  /// Reads what the others have written by now, where no roll was called.
  void collect() { peers_->collect(); }
  /// The same for these ranks, which write themselves, but perhaps later than now: some backends let a rank go on alone. Waits
  /// for them for a while.
  void await(const std::vector<int>& ranks) { peers_->await(ranks); }

  const Peers& peers() const { return *peers_; }
  /// Where they have written it: the store of the job's first group.
  const c10::intrusive_ptr<c10d::Store>& store() const { return store_; }
  /// Process ids; none if one is not known.
  std::vector<int> pids(const std::vector<int>& ranks) const;
  /// Why these ranks cannot share memory (shm_choice.h); empty: they can.
  std::vector<std::string> shm_obstacles(const std::vector<int>& ranks) const;
  /// Follows the operations of one group. Keeps the roster.
  std::shared_ptr<OperationWatch> watch(WatchedGroup group);

 private:
  Roster(std::shared_ptr<Peers> peers, const c10::intrusive_ptr<c10d::Store>& store, int rank, int world_size);
  std::vector<job::Arrival> arrivals(const std::vector<int>& ranks) const;

  const c10::intrusive_ptr<c10d::Store> store_;
  const std::shared_ptr<Peers> peers_;
  const std::shared_ptr<Reports> reports_;
};

}  // namespace cohort::comm
