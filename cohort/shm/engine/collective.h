/// Collective: what an operation is written with. Private to this folder.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "cohort/base/system/deadline.h"
#include "cohort/shm/engine/group.h"
#include "cohort/shm/engine/group_state.h"
#include "cohort/shm/segment/segment.h"
#include "cohort/shm/trace/call.h"
#include "cohort/shm/trace/trace.h"
#include "cohort/shm/transfer/waiting.h"

namespace cohort::shm {

/// One collective under way: rounds in which every rank writes, meets the others, and reads. Small messages that only one rank
/// gives or takes have one round, in which ranks give(), take_from() or open().
class Collective final : private Lookout {
 public:
  /// Payload bytes that travel in the mailbox itself.
  static constexpr size_t kInlineBytes = 24;
  static constexpr size_t kNumberBytes = 8;

  /// `record`: what the trace will keep; null: nothing.
  Collective(Group::State& group, const Call& call, const TraceRecord* record, const CallOptions& options)
      : group_(group), call_(call), record_(record), options_(options), first_round_(group.round + 1) {
    call_.purpose = options.purpose;
  }

  int rank() const { return group_.rank(); }
  int size() const { return group_.size(); }
  size_t slot_bytes() const { return group_.segment.layout().slot_bytes; }
  Group::State& group() { return group_; }

  /// This rank's slots of the round to come. Written before open() or meet(), read by the others after theirs.
  std::byte* input_slot() const { return slot(rank(), group_.round + 1, 0); }
  std::byte* result_slot() const { return slot(rank(), group_.round + 1, 1); }
  std::byte* inline_payload() const { return next_mailbox().payload; }
  /// The slots of the round just met. They stay until this rank enters the next but one.
  const std::byte* input_of(int peer) const { return slot(peer, group_.round, 0); }
  const std::byte* result_of(int peer) const { return slot(peer, group_.round, 1); }
  const std::byte* inline_payload_of(int peer) const { return mailbox_of(peer, group_.round).payload; }

  /// As input_slot() and input_of() for small messages, up to kSmallBytes; they stay longer.
  std::byte* small_input(size_t num_bytes) const;
  const std::byte* small_input_of(int peer, size_t num_bytes) const;

  /// Before anything is written for a round: waits until what it replaces has been read. `runs_ahead`: the operation is one of
  /// give(), take_from() and open(), and uses no staging slot. See [Note: running ahead].
  Outcome begin(bool runs_ahead);
  /// Before open(): `memory` is what the others will read or write if every rank's lies in shared memory. Not for what fits
  /// into the mailbox. What lies in none, nobody is offered.
  void offer(const void* memory, size_t num_bytes);
  /// Before open(): a number that all ranks shall know.
  template <class Number>
  void say(Number number) {
    static_assert(sizeof(Number) == kNumberBytes);
    std::memcpy(inline_payload() + kInlineBytes, &number, kNumberBytes);
  }
  /// After open(), and not many rounds later: what `peer` has said.
  template <class Number>
  Number said_by(int peer) const {
    Number number{};
    std::memcpy(&number, mailbox_of(peer, first_round_).payload + kInlineBytes, kNumberBytes);
    return number;
  }
  /// After open(): every rank's, in order; none unless the operation is kPremulSum.
  const std::vector<double>& factors() const { return factors_; }

  /// The first round, in which the calls are compared.
  Outcome open();
  Outcome meet();
  /// The round of a rank that only gives: it waits for nobody. It compares its call with those of ranks that have come before it;
  /// with the others' by one of the next operations.
  Outcome give();
  /// The round of a rank that takes from `peer` alone, and waits for it alone.
  Outcome take_from(int peer);
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
  /// The end of the operation, for the trace.
  void note_success();
  void note_failure();
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
  static constexpr int kEverybody = -1;

  Outcome look() override;
  /// Before the first wait. Of short messages, where each rank has a core of its own, after the others can see that this rank has
  /// come: it takes as long as their answer.
  void note_begin() {
    if (record_) note_begin_of(*std::exchange(record_, nullptr));
  }
  void note_begin_of(const TraceRecord& record);
  /// Writes what this rank calls into the mailbox of the next round, and enters that.
  void say_call();
  /// Blocks until `whom`, or kEverybody, has come to `round`.
  Outcome wait_for_rank(int whom, uint64_t round);
  std::vector<int> ranks_that_miss() const;
  std::chrono::milliseconds limit() const {
    return base::bounded_time(options_.timeout.value_or(group_.options.timeout));
  }
  /// Blocks until all have come to `round`, and compares the calls up to there.
  Outcome settle(uint64_t round);
  Outcome compare_histories(uint64_t round);
  /// Of the ranks that have come to `round`, one has called something else there.
  bool differs_from_who_came(uint64_t round) const;
  void compare_offers();
  void learn_factors();
  void find_offers();
  Failure timed_out(std::chrono::milliseconds limit, const std::vector<int>& missing) const;
  const Mailbox& mailbox_of(int peer, uint64_t round) const { return group_.segment.mailbox(peer, round); }
  Mailbox& next_mailbox() const { return group_.segment.mailbox(rank(), group_.round + 1); }
  std::byte* slot(int peer, uint64_t round, int which) const {
    return group_.segment.slot(peer, static_cast<int>(round & 1) * 2 + which);
  }

  Group::State& group_;
  Call call_;
  /// Null once it has been kept, as trace_id_.
  const TraceRecord* record_;
  uint64_t trace_id_ = 0;
  const CallOptions& options_;
  const uint64_t first_round_;
  bool is_all_shared_ = false;
  bool is_any_shared_ = false;
  bool are_offers_uneven_ = false;
  const void* offered_ = nullptr;
  size_t num_offered_bytes_ = 0;
  std::vector<std::byte*> offers_;
  std::vector<double> factors_;
  uint64_t awaited_round_ = 0;
  int awaited_rank_ = kEverybody;
  std::chrono::steady_clock::time_point first_look_{};
  int num_looks_ = 0;
};

TraceRecord make_record(const Call& call, uint64_t num_inputs, uint64_t num_outputs, const CallOptions& options);

/// Runs `body(collective)` as an operation of the group: refuses if the group has failed, keeps the record, spreads failures.
/// `runs_ahead`: see Collective::begin().
template <class Body>
Outcome run_collective(Group::State& group, const Call& call, const TraceRecord& record, const CallOptions& options,
                       Body body, bool runs_ahead = false) {
  if (auto failure = group.obstacle_to_begin()) return failure;
  Collective collective(group, call, &record, options);
  auto outcome = collective.begin(runs_ahead);
  if (!outcome) outcome = body(collective);
  if (outcome) {
    collective.quarantine_offer();
    collective.note_failure();
    return outcome;
  }
  collective.note_success();
  return nullptr;
}

}  // namespace cohort::shm
