/// The state of a Group. Private to this folder.
#pragma once

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cohort/shm/engine/group.h"
#include "cohort/shm/memory/regions.h"
#include "cohort/shm/memory/shared_memory.h"
#include "cohort/shm/report/registry.h"
#include "cohort/shm/segment/segment.h"
#include "cohort/shm/trace/call.h"
#include "cohort/shm/trace/trace.h"
#include "cohort/shm/transfer/exchange.h"

namespace cohort::shm {

/// See Group::set_staged_bytes().
inline std::atomic<size_t> staged_bytes = size_t{16} << 10;

/// Whether what one rank sends or receives is small: see [Note: running ahead]. The same on all ranks.
inline bool is_small(size_t num_bytes) { return num_bytes <= kSmallBytes && num_bytes <= staged_bytes; }

inline int name_of_rank(const GroupOptions& options, int rank) {
  return options.global_ranks.empty() ? rank : options.global_ranks[static_cast<size_t>(rank)];
}

/// Returns null, or kArgument.
Outcome check_root(int root, int world_size);

struct Group::State final : Neighbors {
  State(const GroupOptions& group_options, SharedMemoryPtr shared_memory);

  GroupOptions options;
  /// The process that joined.
  const int owner = getpid();
  SharedMemoryPtr memory;
  Segment segment;
  Patience patience;
  /// Indexed by the round's number.
  Gathering gatherings[kRounds];
  /// The last round that this rank has entered. Ranks that make the same calls enter the same rounds.
  uint64_t round = 0;
  /// All ranks have reached this round, and have made the same calls up to it: see [Note: running ahead].
  uint64_t met = 0;
  /// The history of all calls up to `round`: see mix().
  uint32_t history = 0;
  /// The longest timeout of the calls since `met`.
  std::chrono::milliseconds longest_limit{0};
  Trace trace;
  TracedGroup traced;
  Regions regions;
  std::atomic<bool> is_aborted = false;

  mutable std::mutex failure_mutex;
  std::atomic<bool> has_failed = false;
  Outcome first_failure;
  /// Set once all ranks have arrived.
  std::unique_ptr<Exchange> exchange;

  int rank() const { return options.rank; }
  int size() const { return options.world_size; }
  /// The number of a rank in texts.
  int name_of_rank(int rank) const { return shm::name_of_rank(options, rank); }
  /// Returns "rank 2 (pid 4711 on node-a)".
  std::string describe(int rank) const override;
  /// Makes `failure` the group's failure, on this rank and (unless another rank was first) on all.
  Outcome record(Failure failure);
  /// Returns null while the group is in order, here and on the other ranks.
  Outcome refusal();
  Outcome first_failure_of_another() const;
  /// Returns why `peer` will not arrive: it has ended, has left, or another rank has failed. Null if there is no reason.
  /// `purpose` is that of the operation that waits for it.
  Outcome look_after(int peer, uint8_t purpose = 0) const;
  std::vector<int> ranks_not_in(uint64_t round_number) const;
  const Gathering& gathering(uint64_t round_number) const { return gatherings[round_number % kRounds]; }
  /// Returns each rank's call in a round that all have reached.
  std::vector<Signature> calls_in(uint64_t round_number) const;
  bool do_calls_agree(uint64_t round_number) const;
  /// Returns the first round with calls that differ, among those that all ranks have reached; nullopt if all are equal.
  std::optional<uint64_t> find_mismatch() const;
  Failure mismatch_in(uint64_t round_number, bool is_earlier) const;
  /// Returns this rank's view of a mismatch that another rank has found in calls that this rank has not compared. `call` is the
  /// first round of the running operation.
  Outcome mismatch_found_by_another(uint64_t call);
  /// Returns why no operation can begin; null if one can.
  Outcome obstacle_to_begin();

  /// Called by the exchange.
  Outcome failure() override;
  Outcome look(int peer) override { return look_after(peer); }
  void report(const Outcome& failure) override;
};

}  // namespace cohort::shm
