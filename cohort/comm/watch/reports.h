/// What ranks tell each other through the store when something goes wrong: where each waits, and who failed why.
///
/// Python ranks write none of this, so nothing here waits for a key. No function throws: the store may have ended with the
/// rank that hosts it. Thread-safe.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/comm/watch/peers.h"
#include "cohort/job/operation_log.h"

namespace cohort::comm {

struct FailureReport {
  enum class Kind { kOther, kTimeout, kLostRank, kMismatch };
  Kind kind = Kind::kOther;
  /// "all_reduce #5 on group \"dp\"".
  std::string where;
  /// The first cause, in words.
  std::string cause;
  job::Account account;
};

class Reports {
 public:
  /// `store`: the job's, the same for all groups.
  Reports(c10::intrusive_ptr<c10d::Store> store, std::shared_ptr<Peers> peers, int rank, int world_size);

  /// Tells the others that this rank has noticed a failure, so that it is not taken for its cause. The first one counts.
  void publish_failure(const FailureReport& report);
  std::optional<FailureReport> failure_of(int rank) const;

  /// Where this rank waits, for those that wait for it. `account.group` and `sequence` say in what.
  void publish_waiting(const job::Account& account);
  /// Where `rank` waited last; it may have gone on since.
  std::optional<job::Account> waiting_of(int rank) const;

  /// Ranks of this host whose process is gone; of several, those that died before they could report a failure.
  std::vector<int> lost_ranks() const;

  /// For rank 0, whose process usually hosts the store: blocks until every other rank has published a failure or is gone,
  /// at most `limit`, so that they can still read who failed first. No effect on other ranks.
  void wait_until_others_know(std::chrono::milliseconds limit) const;

 private:
  std::optional<std::string> read(const char* kind, int rank) const;
  void write(const char* kind, const std::string& text) const;
  bool knows_of_failure(int rank) const;
  bool store_lives() const;

  c10::intrusive_ptr<c10d::Store> store_;
  std::shared_ptr<Peers> peers_;
  int rank_;
  int world_size_;
  bool hosted_by_rank_0_ = true;
  mutable std::atomic<bool> store_lost_ = false;
};

}  // namespace cohort::comm
