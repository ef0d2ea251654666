/// What a Group is made of, and what an operation is written with. Private to this folder.
#pragma once

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cohort/shm/call.h"
#include "cohort/shm/exchange.h"
#include "cohort/shm/group.h"
#include "cohort/shm/regions.h"
#include "cohort/shm/report/registry.h"
#include "cohort/shm/segment.h"
#include "cohort/shm/shared_memory.h"
#include "cohort/shm/trace.h"

namespace cohort::shm {

/// See Group::set_staged_bytes().
inline std::atomic<size_t> staged_bytes = size_t{16} << 10;

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
  /// By the round's parity.
  Gathering gatherings[2];
  /// The last round that this rank has entered; the same on all ranks between two operations.
  uint64_t round = 0;
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
  Outcome look_after(int peer, base::Purpose purpose = base::Purpose::kOwn) const;
  std::vector<int> ranks_not_in(uint64_t round_number) const;

  /// For the exchange.
  Outcome failure() override;
  Outcome look(int peer) override { return look_after(peer); }
  void report(const Outcome& failure) override;
};

/// One collective under way: rounds in which every rank writes, meets the others, and reads.
class Collective final : private Lookout {
 public:
  /// Payload bytes that travel in the mailbox itself.
  static constexpr size_t kInlineBytes = 24;

  Collective(Group::State& group, const Call& call, const CallOptions& options)
      : group_(group), call_(call), options_(options) {
    call_.purpose = options.purpose;
  }

  int rank() const { return group_.rank(); }
  int size() const { return group_.size(); }
  size_t slot_bytes() const { return group_.segment.layout().slot_bytes; }
  Group::State& group() { return group_; }

  /// This rank's slots of the round to come. Written before open() or meet(), read by the others after theirs.
  std::byte* input_slot() const { return slot(rank(), group_.round + 1, 0); }
  std::byte* result_slot() const { return slot(rank(), group_.round + 1, 1); }
  std::byte* inline_payload() const { return mailbox(rank(), group_.round + 1).payload; }
  /// The slots of the round just met. They stay until this rank enters the next but one.
  const std::byte* input_of(int peer) const { return slot(peer, group_.round, 0); }
  const std::byte* result_of(int peer) const { return slot(peer, group_.round, 1); }
  const std::byte* inline_payload_of(int peer) const { return mailbox(peer, group_.round).payload; }

  /// Before open(): `memory` is what the others will read or write if every rank's lies in shared memory. Not for what fits
  /// into the mailbox. What lies in none, nobody is offered.
  void offer(const void* memory, size_t num_bytes);
  /// Before open(): this rank's factor.
  void set_factor(double factor);
  /// After open(): every rank's, in order; none unless the operation is kPremulSum.
  const std::vector<double>& factors() const { return factors_; }

  /// The first round, in which the calls are compared.
  Outcome open();
  Outcome meet();
  /// open() with what `stage()` writes into the slots, which is left out if the offers make it needless.
  template <class Stage>
  Outcome open_with(Stage stage) {
    if (!offered_) stage();
    if (auto failure = open()) return failure;
    if (is_all_shared_ || !is_any_shared_) return nullptr;
    stage();  // into the slots of one more round
    return meet();
  }
  /// Null: the group still stands. What works in other ranks' memory asks before each block that it reads or writes: they may
  /// have given the operation up while this rank was stopped.
  Outcome check();
  /// The end of an operation in other ranks' memory: meet(), and nobody has given up.
  Outcome finish();
  /// The operation has failed. Others may still write to what this rank has offered, or not have read it yet.
  void quarantine_offer() const;
  /// After open(): every rank has offered shared memory, of one kind, and, unless sizes may differ, as many bytes.
  bool is_all_shared() const { return is_all_shared_; }
  /// Before open(): ranks may offer different numbers of bytes.
  void expect_uneven_offers() { are_offers_uneven_ = true; }
  /// `peer`'s offer.
  std::byte* offer_of(int peer) const { return offers_[static_cast<size_t>(peer)]; }
  /// How many bytes every rank has offered, if they are even.
  size_t num_offered_bytes() const { return num_offered_bytes_; }

 private:
  Outcome look() override;
  Outcome compare();
  void learn_factors();
  void find_offers();
  Failure timed_out(std::chrono::milliseconds limit, const std::vector<int>& missing) const;
  Mailbox& mailbox(int peer, uint64_t round) const { return group_.segment.block(peer).mailboxes[round & 1]; }
  std::byte* slot(int peer, uint64_t round, int which) const {
    return group_.segment.slot(peer, static_cast<int>(round & 1) * 2 + which);
  }

  Group::State& group_;
  Call call_;
  const CallOptions& options_;
  bool is_all_shared_ = false;
  bool is_any_shared_ = false;
  bool are_offers_uneven_ = false;
  const void* offered_ = nullptr;
  size_t num_offered_bytes_ = 0;
  std::vector<std::byte*> offers_;
  std::vector<double> factors_;
  std::chrono::steady_clock::time_point first_look_{};
  int num_looks_ = 0;
};

TraceRecord make_record(const Call& call, uint64_t num_inputs, uint64_t num_outputs, const CallOptions& options);

/// Runs `body(collective)` as an operation of the group: refuses if the group has failed, keeps the record, spreads failures.
template <class Body>
Outcome run_collective(Group::State& group, const Call& call, const TraceRecord& record, const CallOptions& options,
                       Body body) {
  if (auto failure = group.failure()) return failure;
  const auto id = options.trace_id ? options.trace_id : group.trace.begin(record);
  if (options.trace_id) group.trace.start(id);
  Collective collective(group, call, options);
  const Outcome outcome = body(collective);
  if (outcome) {
    collective.quarantine_offer();
    group.trace.fail(id);
    return outcome;
  }
  group.trace.complete(id);
  return nullptr;
}

}  // namespace cohort::shm
