// The rounds of an operation, and the checks of a rank while it waits.
#include <fmt/format.h>
#include <algorithm>
#include <cstring>

#include "cohort/base/text/text.h"
#include "cohort/shm/arena/process_arena.h"
#include "cohort/shm/engine/collective.h"
#include "cohort/shm/report/dump.h"
#include "cohort/shm/segment/peer_record.h"

namespace cohort::shm {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// A rank's offer, in the mailbox.
struct MailedOffer {
  Place place;
  uint64_t num_bytes;
};
static_assert(sizeof(MailedOffer) <= Collective::kInlineBytes);

// Ranks that compute between two operations drift apart by about this time.
constexpr auto kKeepTime = std::chrono::microseconds(500);
// The record of smaller messages, which take less than a microsecond to stage, is written after staging.
constexpr size_t kLateNoteBytes = 16 << 10;
// Two slices of sleep are 50 ms apart.
constexpr int kLooksPerObstacle = 5;

size_t bytes_of(const TraceRecord& record) {
  return std::max(record.num_inputs, record.num_outputs) * size_of(record.dtype);
}

}  // namespace

void Collective::offer(const void* memory, size_t num_bytes) {
  const auto place = group_.regions.find(memory, num_bytes);
  if (place.region == 0) return;
  call_.is_shared = true;
  offered_ = memory;
  num_offered_bytes_ = num_bytes;
  const MailedOffer offer{place, num_bytes};
  std::memcpy(inline_payload(), &offer, sizeof(offer));
}

// Reads the factors in the first round: the mailboxes of other rounds do not have them.
void Collective::learn_factors() {
  factors_.resize(static_cast<size_t>(size()));
  for (int peer = 0; peer < size(); ++peer) {
    factors_[static_cast<size_t>(peer)] = said_by<double>(peer);
  }
}

std::byte* Collective::small_input(size_t num_bytes) const {
  return num_bytes <= kInlineBytes ? inline_payload() : group_.segment.small_slot(rank(), group_.round + 1);
}

const std::byte* Collective::small_input_of(int peer, size_t num_bytes) const {
  return num_bytes <= kInlineBytes ? inline_payload_of(peer) : group_.segment.small_slot(peer, group_.round);
}

// A rank that runs ahead settles half of the rounds that it could, so that it need not do so before every round.
Outcome Collective::begin(bool runs_ahead) {
  // A rank that shares its core may lose it between its arrival and its record.
  if (record_ && (!options_.keeps_core || bytes_of(*record_) > kLateNoteBytes)) note_begin();
  if (group_.met == group_.round) return nullptr;
  const auto next = group_.round + 1;
  if (runs_ahead && next <= group_.met + kMostAhead) return nullptr;
  auto failure = settle(runs_ahead ? next - kMostAhead / 2 : group_.round);
  num_looks_ = 0;  // the operation itself has its own timeout
  return failure;
}

void Collective::say_call() {
  const auto signature = encode(call_);
  auto& mailbox = next_mailbox();
  std::memcpy(mailbox.signature, signature.words, sizeof(signature.words));
  mailbox.round.word = group_.history = mix(group_.history, signature);
  ++group_.round;
  group_.longest_limit = std::max(group_.longest_limit, limit());
}

void Collective::note_begin_of(const TraceRecord& record) {
  trace_id_ = options_.trace_id ? options_.trace_id : group_.trace.begin(record);
  if (options_.trace_id) group_.trace.start(trace_id_);
}

void Collective::note_success() {
  note_begin();
  group_.trace.complete(trace_id_);
}

void Collective::note_failure() {
  note_begin();
  group_.trace.fail(trace_id_);
}

Outcome Collective::open() {
  say_call();
  group_.gathering(group_.round).arrive(group_.round);
  if (auto failure = settle(group_.round)) return failure;
  compare_offers();
  if (call_.is_shared) find_offers();
  if (call_.reduce_op == ReduceOp::kPremulSum) learn_factors();
  return nullptr;
}

Outcome Collective::meet() {
  const auto round = ++group_.round;
  group_.gathering(round).arrive(round);
  if (auto failure = wait_for_rank(kEverybody, round)) return failure;
  group_.met = round;
  return nullptr;
}

Outcome Collective::give() {
  say_call();
  const auto& gathering = group_.gathering(group_.round);
  if (call_.root == rank()) {
    gathering.arrive_alone(group_.round);
  } else {
    gathering.arrive(group_.round);
  }
  return differs_from_who_came(group_.round) ? settle(group_.round) : nullptr;
}

// Counters are increased and read in one order for all ranks, so of two ranks with different calls at least the later one sees
// the other's call.
bool Collective::differs_from_who_came(uint64_t round) const {
  const auto& mine = mailbox_of(rank(), round);
  for (int peer = 0; peer < size(); ++peer) {
    const auto& theirs = mailbox_of(peer, round);
    if (peer != rank() && theirs.round.has_reached(round) && !agree(theirs.called(), mine.called())) return true;
  }
  return false;
}

Outcome Collective::take_from(int peer) {
  say_call();
  const auto round = group_.round;
  group_.gathering(round).arrive(round);
  if (auto failure = wait_for_rank(peer, round)) return failure;
  const auto& theirs = mailbox_of(peer, round);
  const bool do_agree = theirs.round.word == group_.history && agree(theirs.called(), encode(call_));
  return do_agree ? nullptr : settle(round);
}

Outcome Collective::wait_for_rank(int whom, uint64_t round) {
  note_begin();
  awaited_rank_ = whom;
  awaited_round_ = round;
  const auto& gathering = group_.gathering(round);
  auto patience = group_.patience;
  if (options_.keeps_core) patience.keep_time = kKeepTime;
  if (whom == kEverybody) return wait_for(gathering, round, patience, *this);
  const auto place = static_cast<size_t>((whom - rank() + size()) % size() - 1);  // in the order of State
  return wait_for_one(gathering, place, round, patience, *this);
}

Outcome Collective::settle(uint64_t round) {
  if (auto failure = wait_for_rank(kEverybody, round)) return failure;
  if (auto failure = compare_histories(round)) return failure;
  group_.met = round;
  if (group_.met == group_.round) group_.longest_limit = {};
  return nullptr;
}

Outcome Collective::compare_histories(uint64_t round) {
  const auto& mine = mailbox_of(rank(), round);
  bool all_agree = true;
  for (int peer = 0; peer < size(); ++peer) {
    const auto& theirs = mailbox_of(peer, round);
    all_agree = all_agree && theirs.round.word == mine.round.word && agree(theirs.called(), mine.called());
  }
  if (all_agree) return nullptr;
  auto first = group_.met + 1;
  while (first < round && group_.do_calls_agree(first)) ++first;
  return group_.record(group_.mismatch_in(first, first < first_round_));
}

Outcome Collective::check() {
  // Relaxed: the line is written once in the life of a group; first_failure_of_another() acquires it.
  if (group_.segment.header().failed_rank.load(std::memory_order_relaxed) == 0) return nullptr;
  const auto first = group_.first_failure_of_another();
  return first ? group_.record(*first) : group_.failure();
}

Outcome Collective::finish() {
  if (auto missed = meet()) return missed;
  return check();
}

void Collective::quarantine_offer() const {
  if (!offered_) return;
  if (auto* const arena = arena_of(offered_)) arena->quarantine(offered_, num_offered_bytes_);
}

void Collective::compare_offers() {
  is_all_shared_ = true;
  for (int peer = 0; peer < size(); ++peer) {
    const bool shares = is_shared(mailbox_of(peer, group_.round).called());
    is_all_shared_ = is_all_shared_ && shares;
    is_any_shared_ = is_any_shared_ || shares;
  }
}

// If ranks offer parts of different regions, the operation uses staging, because a region may be gone on ranks that do not use
// it. All ranks see all offers and so make the same choice.
void Collective::find_offers() {
  if (!is_all_shared_) return;
  offers_.resize(static_cast<size_t>(size()));
  MailedOffer first{};
  std::memcpy(&first, inline_payload_of(0), sizeof(first));
  for (int peer = 0; peer < size(); ++peer) {
    MailedOffer theirs{};
    std::memcpy(&theirs, inline_payload_of(peer), sizeof(theirs));
    const bool is_even = are_offers_uneven_ || theirs.num_bytes == first.num_bytes;
    auto* const address = group_.regions.address(peer, theirs.place, theirs.num_bytes);
    if (theirs.place.region != first.place.region || !is_even || !address) is_all_shared_ = false;
    offers_[static_cast<size_t>(peer)] = address;
  }
}

bool Group::meet_soon(std::chrono::microseconds limit, const CallOptions& options) {
  auto& segment = state_->segment;
  const auto round = state_->round + 1;
  segment.block(rank()).coming.store(round, std::memory_order_relaxed);
  const auto end = Clock::now() + limit;
  for (int peer = 0; peer < world_size(); ++peer) {
    const auto& block = segment.block(peer);
    while (block.coming.load(std::memory_order_relaxed) < round &&
           !segment.mailbox(peer, round).round.has_reached(round)) {
      if (Clock::now() >= end) return false;
      linger(segment.mailbox(peer, state_->round).round, options.keeps_core);
    }
  }
  return true;
}

std::vector<int> Collective::ranks_that_miss() const {
  auto missing = group_.ranks_not_in(awaited_round_);
  if (awaited_rank_ != kEverybody) std::erase_if(missing, [this](int peer) { return peer != awaited_rank_; });
  return missing;
}

bool Group::is_settled() const { return state_->met == state_->round; }

Outcome Group::settle(const CallOptions& options) {
  if (is_settled()) return nullptr;
  if (auto failure = state_->obstacle_to_begin()) return failure;
  const auto last_call = decode_call(state_->segment.mailbox(rank(), state_->round).called());
  return Collective(*state_, last_call, /*record=*/nullptr, options).begin(/*runs_ahead=*/false);
}

Outcome Collective::look() {
  const auto now = Clock::now();
  if (num_looks_++ == 0) first_look_ = now;
  if (group_.is_aborted.load(std::memory_order_acquire)) {
    return group_.record({Failure::Kind::kAborted, {"the group was aborted on this rank"}, ""});
  }
  const auto missing = ranks_that_miss();
  const bool is_earlier = awaited_round_ < first_round_;
  const auto purpose = is_earlier ? decode_call(mailbox_of(rank(), awaited_round_).called()).purpose : call_.purpose;
  for (const int peer : missing) {
    auto failure = group_.look_after(peer, purpose);
    if (!failure) continue;
    const auto own_view = group_.mismatch_found_by_another(first_round_);
    return own_view ? own_view : group_.record(*failure);
  }
  if (options_.find_obstacle && num_looks_ % kLooksPerObstacle == 0) {
    if (auto obstacle = (*options_.find_obstacle)(); !obstacle.empty()) {
      return group_.record({Failure::Kind::kObstacle, {std::move(obstacle)}, ""});
    }
  }
  // Earlier calls of other ranks have their own timeouts.
  const auto most = is_earlier ? std::max(limit(), group_.longest_limit) : limit();
  if (now - first_look_ < most || missing.empty()) return nullptr;
  return group_.record(timed_out(most, missing));
}

Failure Collective::timed_out(milliseconds limit, const std::vector<int>& missing) const {
  Failure failure{Failure::Kind::kTimeout, {}, "", missing};
  for (const int peer : missing) {
    failure.causes.push_back(
        fmt::format("{} has not arrived within {}", group_.describe(peer), base::format_duration(limit)));
  }
  const auto record = note_timeout(fmt::format("{} on group \"{}\"", describe(call_), group_.options.name));
  if (!record.empty()) failure.hint = "see what each rank of this host did in " + record;
  return failure;
}

Outcome check_root(int root, int world_size) {
  if (root >= 0 && root < world_size) return nullptr;
  return fail({Failure::Kind::kArgument,
               {fmt::format("root {} is out of range. Valid ranks are 0 to {}", root, world_size - 1)},
               ""});
}

TraceRecord make_record(const Call& call, uint64_t num_inputs, uint64_t num_outputs, const CallOptions& options) {
  return {.kind = call.kind,
          .dtype = call.dtype,
          .reduce_op = call.reduce_op,
          .root = call.root,
          .num_inputs = num_inputs,
          .num_outputs = num_outputs,
          .timeout_ms = options.timeout ? options.timeout->count() : 0,
          .call_site = options.call_site};
}

}  // namespace cohort::shm
