/// Reports that ranks exchange through the store if something goes wrong: where each rank waits, and who failed and why.
///
/// Python ranks write no reports, so nothing here waits for a key. No function throws: the store may have ended with the
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
#include "cohort/job/failure.h"
#include "cohort/job/operation_log.h"

namespace cohort::comm {

struct FailureReport {
  base::Failure failure;
  /// The operation that failed.
  job::Account account;
};

class Reports {
 public:
  /// `store`: the job's store, the same for all groups.
  Reports(c10::intrusive_ptr<c10d::Store> store, std::shared_ptr<Peers> peers, int rank, int world_size);

  /// Tells the others that this rank has noticed a failure, so that they do not take it for the cause. The first call counts.
  void publish_failure(const FailureReport& report);
  std::optional<FailureReport> failure_of(int rank) const;

  /// Tells where this rank waits. `account.group` and `sequence` name the operation.
  void publish_waiting(const job::Account& account);
  /// Returns where `rank` waited last; it may have gone on since.
  std::optional<job::Account> waiting_of(int rank) const;

  /// Returns ranks of this host whose process is gone. If there are several, only those that ended before they could report a
  /// failure.
  std::vector<int> lost_ranks() const;

  /// For rank 0, whose process usually hosts the store: blocks until every other rank has published a failure or is gone,
  /// at most `limit`, so that they can still read who failed first. Does nothing on other ranks.
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
