/// Runs a test's ranks as threads of this process, or as forked processes: without LibTorch forking is safe.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "cohort/shm/engine/group.h"

namespace cohort::shm {

struct RankOptions {
  std::chrono::milliseconds timeout = std::chrono::seconds(60);
  /// Small, so that little data takes many rounds.
  size_t slot_bytes = 8192;
  /// Each rank (each process) makes an arena of so many bytes before it joins; 0: none.
  size_t arena_bytes = 0;
  /// Called in each forked rank before it joins; may be empty.
  std::function<void(int)> before_join = {};
};

GroupOptions group_options(const std::string& address, int rank, int world_size, const RankOptions& options);

/// Calls fn(group) on `world_size` threads that have joined one group.
void run_threads(int world_size, const std::function<void(Group&)>& fn, const RankOptions& options = {});

/// Forked processes, one per rank, each with its group. What fn prints to std::cout is kept; a failed expectation is exit
/// code 1. The destructor kills what still runs.
class ForkedRanks {
 public:
  ForkedRanks(int world_size, const std::function<void(Group&)>& fn, const RankOptions& options = {});
  ~ForkedRanks();

  int world_size() const { return static_cast<int>(ranks_.size()); }
  pid_t pid(int rank) const { return ranks_[static_cast<size_t>(rank)].pid; }
  /// Blocks until every rank has its group.
  void wait_until_joined() const;
  void signal(int rank, int signal_number);
  /// Blocks until the rank has ended, at most `limit` (then it is killed and the test fails). Returns waitpid's status.
  int wait(int rank, std::chrono::seconds limit = std::chrono::seconds(60));
  /// Blocks until a signal has stopped the rank.
  void wait_until_stopped(int rank);
  /// Leaves the ended rank a zombie.
  void wait_until_zombie(int rank);
  std::string output(int rank);
  /// Waits for all; expects exit code 0 of each.
  void expect_success();

 private:
  struct Rank {
    pid_t pid = -1;
    int output = -1;
    int status = 0;
    bool is_reaped = false;
    std::string text;
  };
  std::vector<Rank> ranks_;
  std::atomic<int>* num_joined_;  ///< shared with the ranks
};

/// The causes, then the hint, a line each; "success" for none.
std::string text_of(const Outcome& outcome);

}  // namespace cohort::shm
