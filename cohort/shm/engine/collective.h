/// Collective: the base of operations. Private to this folder.
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

/// One running collective, in rounds: in each, every rank writes, meets the others, and reads. Small messages that only one rank
/// sends or receives have one round, in which ranks call give(), take_from() or open().
class Collective final : private Lookout {
 public:
  /// The payload bytes that fit into the mailbox itself.
  static constexpr size_t kInlineBytes = 24;
  static constexpr size_t kNumberBytes = 8;

  /// `record` is the trace's record; null means that none is kept.
  Collective(Group::State& group, const Call& call, const TraceRecord* record, const CallOptions& options)
      : group_(group), call_(call), record_(record), options_(options), first_round_(group.round + 1) {
    call_.purpose = options.purpose;
  }

  int rank() const { return group_.rank(); }
  int size() const { return group_.size(); }
  size_t slot_bytes() const { return group_.segment.layout().slot_bytes; }
  Group::State& group() { return group_; }

  /// This rank's slots of the next round. Written before open() or meet(), read by the others after theirs.
  std::byte* input_slot() const { return slot(rank(), group_.round + 1, 0); }
  std::byte* result_slot() const { return slot(rank(), group_.round + 1, 1); }
  std::byte* inline_payload() const { return next_mailbox().payload; }
  /// The slots of the last round. They stay valid until this rank enters the round after the next.
  const std::byte* input_of(int peer) const { return slot(peer, group_.round, 0); }
  const std::byte* result_of(int peer) const { return slot(peer, group_.round, 1); }
  const std::byte* inline_payload_of(int peer) const { return mailbox_of(peer, group_.round).payload; }

  /// As input_slot() and input_of(), for small messages up to kSmallBytes; they stay valid longer.
  std::byte* small_input(size_t num_bytes) const;
  const std::byte* small_input_of(int peer, size_t num_bytes) const;

  /// Waits, before anything is written for a round, until the content that it replaces has been read. `runs_ahead` says that the
  /// operation uses give(), take_from() or open(), and no staging slot. See [Note: running ahead].
  Outcome begin(bool runs_ahead);
  /// Offers `memory`, which the others will read or write if the memory of every rank is shared. Call it before open(), and not
  /// for messages that fit into the mailbox. Memory that is not shared is not offered.
  void offer(const void* memory, size_t num_bytes);
  /// Sends a number to all ranks. Call it before open().
  template <class Number>
  void say(Number number) {
    static_assert(sizeof(Number) == kNumberBytes);
    std::memcpy(inline_payload() + kInlineBytes, &number, kNumberBytes);
  }
  /// Returns the number that `peer` sent. Call it after open(), and not many rounds later.
  template <class Number>
  Number said_by(int peer) const {
    Number number{};
    std::memcpy(&number, mailbox_of(peer, first_round_).payload + kInlineBytes, kNumberBytes);
    return number;
  }
  /// The factors of all ranks in order, after open(). Empty unless the operation is kPremulSum.
  const std::vector<double>& factors() const { return factors_; }

  /// Runs the first round, in which the calls are compared.
  Outcome open();
  Outcome meet();
  /// Runs the round of a rank that only sends, and waits for nobody. It compares its call with those of ranks that have already
  /// arrived; the other calls are compared in one of the next operations.
  Outcome give();
  /// Runs the round of a rank that only receives from `peer`, and waits only for it.
  Outcome take_from(int peer);
  /// Runs open() and sends what `stage()` writes into the slots. Skips stage() if the offers make it needless.
  template <class Stage>
  Outcome open_with(Stage stage) {
    if (!offered_) stage();
    if (auto failure = open()) return failure;
    if (is_all_shared_ || !is_any_shared_) return nullptr;
    stage();  // writes into the slots of one more round
    return meet();
  }
  /// Returns null while the group is in order. Code that works in other ranks' memory must call this before each block that it
  /// reads or writes: those ranks may have given up the operation while this rank was stopped.
  Outcome check();
  /// Ends an operation in other ranks' memory: meet(), and a check that nobody has given up.
  Outcome finish();
  /// Records the end of the operation in the trace.
  void note_success();
  void note_failure();
  /// Puts the offered memory into quarantine, after a failure: other ranks may still write to it, or not have read it yet.
  void quarantine_offer() const;
  /// Whether, after open(), every rank has offered shared memory of one kind, and equal sizes unless sizes may differ.
  bool is_all_shared() const { return is_all_shared_; }
  /// Allows ranks to offer different numbers of bytes. Call it before open().
  void expect_uneven_offers() { are_offers_uneven_ = true; }
  /// The offer of `peer`.
  std::byte* offer_of(int peer) const { return offers_[static_cast<size_t>(peer)]; }
  /// The number of bytes that every rank has offered, if they are equal.
  size_t num_offered_bytes() const { return num_offered_bytes_; }

 private:
  static constexpr int kEverybody = -1;

  Outcome look() override;
  /// Records the begin, before the first wait. For short messages, if each rank has a core of its own, it runs after the other
  /// ranks can see that this rank has arrived, because it takes as long as their answer.
  void note_begin() {
    if (record_) note_begin_of(*std::exchange(record_, nullptr));
  }
  void note_begin_of(const TraceRecord& record);
  /// Writes this rank's call into the mailbox of the next round, and enters that round.
  void say_call();
  /// Blocks until `whom`, or kEverybody, has reached `round`.
  Outcome wait_for_rank(int whom, uint64_t round);
  std::vector<int> ranks_that_miss() const;
  std::chrono::milliseconds limit() const {
    return base::bounded_time(options_.timeout.value_or(group_.options.timeout));
  }
  /// Blocks until all ranks have reached `round`, and compares the calls up to there.
  Outcome settle(uint64_t round);
  Outcome compare_histories(uint64_t round);
  /// Whether one of the ranks that have reached `round` has made another call there.
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
  /// Null after it was written, with trace_id_ as its id.
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

/// Runs `body(collective)` as an operation of the group: refuses it if the group has failed, writes the record, and spreads
/// failures. For `runs_ahead` see Collective::begin().
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
