/// What a Group is made of. Private to this folder.
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

/// Of what one rank gives or takes: see [Note: running ahead]. The same on all ranks.
inline bool is_small(size_t num_bytes) { return num_bytes <= kSmallBytes && num_bytes <= staged_bytes; }

inline int name_of_rank(const GroupOptions& options, int rank) {
  return options.global_ranks.empty() ? rank : options.global_ranks[static_cast<size_t>(rank)];
}

/// Null, or kArgument.
Outcome check_root(int root, int world_size);

struct Group::State final : Neighbours {
  State(const GroupOptions& group_options, SharedMemoryPtr shared_memory);

  GroupOptions options;
  /// The process that joined.
  const int owner = getpid();
  SharedMemoryPtr memory;
  Segment segment;
  Patience patience;
  /// By the round's number.
  Gathering gatherings[kRounds];
  /// The last round that this rank has entered. Ranks that make the same calls enter the same rounds.
  uint64_t round = 0;
  /// Up to here all ranks have come, and have made the same calls: see [Note: running ahead].
  uint64_t met = 0;
  /// For all calls up to `round`: see mix().
  uint32_t history = 0;
  /// The longest time that calls since `met` had for the others to come.
  std::chrono::milliseconds longest_limit{0};
  Trace trace;
  TracedGroup traced;
  Regions regions;
  std::atomic<bool> is_aborted = false;

  mutable std::mutex failure_mutex;
  std::atomic<bool> has_failed = false;
  Outcome first_failure;
  /// Once all ranks have come.
  std::unique_ptr<Exchange> exchange;

  int rank() const { return options.rank; }
  int size() const { return options.world_size; }
  /// The number that texts call a rank by.
  int name_of_rank(int rank) const { return shm::name_of_rank(options, rank); }
  /// "rank 2 (pid 4711 on node-a)"
  std::string describe(int rank) const override;
  /// Makes `failure` the group's, on this rank and (unless another rank was first) for all.
  Outcome record(Failure failure);
  /// Null: the group is in order, here and on the other ranks.
  Outcome refusal();
  Outcome first_failure_of_another() const;
  /// Why `peer` will not come: it is gone, has left, or another rank has failed. Null: no reason.
  /// `purpose`: of the operation that waits for it.
  Outcome look_after(int peer, uint8_t purpose = 0) const;
  std::vector<int> ranks_not_in(uint64_t round_number) const;
  const Gathering& gathering(uint64_t round_number) const { return gatherings[round_number % kRounds]; }
  /// What each rank has called in a round to which all have come.
  std::vector<Signature> calls_in(uint64_t round_number) const;
  bool do_calls_agree(uint64_t round_number) const;
  /// The first round, of those to which all have come, with calls that do not agree; none is known so far.
  std::optional<uint64_t> find_mismatch() const;
  Failure mismatch_in(uint64_t round_number, bool is_earlier) const;
  /// Another rank has failed for calls that this one has not compared: its own view. `call`: the running operation's first round.
  Outcome mismatch_found_by_another(uint64_t call);
  /// Why no operation can begin; null: it can.
  Outcome obstacle_to_begin();

  /// For the exchange.
  Outcome failure() override;
  Outcome look(int peer) override { return look_after(peer); }
  void report(const Outcome& failure) override;
};

}  // namespace cohort::shm
