// The rounds of an operation, and what a rank looks after while it waits.
#include <fmt/format.h>
#include <cstring>

#include "cohort/base/text.h"
#include "cohort/shm/arena/process_arena.h"
#include "cohort/shm/group_state.h"
#include "cohort/shm/peer_record.h"
#include "cohort/shm/report/dump.h"

namespace cohort::shm {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr size_t kFactorOffset = Collective::kInlineBytes;
// What a rank offers, in the mailbox.
struct MailedOffer {
  Place place;
  uint64_t num_bytes;
};
static_assert(sizeof(MailedOffer) <= Collective::kInlineBytes);

// Ranks that compute between two operations come apart by about as much.
constexpr auto kKeepTime = std::chrono::microseconds(500);
// A slice of sleep takes 50 ms.
constexpr int kLooksPerObstacle = 5;

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

void Collective::set_factor(double factor) { std::memcpy(inline_payload() + kFactorOffset, &factor, sizeof(factor)); }

// In the first round: another one's mailboxes have none.
void Collective::learn_factors() {
  factors_.resize(static_cast<size_t>(size()));
  for (int peer = 0; peer < size(); ++peer) {
    std::memcpy(&factors_[static_cast<size_t>(peer)], inline_payload_of(peer) + kFactorOffset, sizeof(double));
  }
}

Outcome Collective::open() {
  const auto signature = encode(call_);
  std::memcpy(mailbox(rank(), group_.round + 1).signature, signature.words, sizeof(signature.words));
  if (auto failure = meet()) return failure;
  if (auto failure = compare()) return failure;
  if (call_.is_shared) find_offers();
  if (call_.reduce_op == ReduceOp::kPremulSum) learn_factors();
  return nullptr;
}

Outcome Collective::meet() {
  const auto round = ++group_.round;
  const auto& gathering = group_.gatherings[round & 1];
  gathering.arrive(round);
  auto patience = group_.patience;
  if (options_.keeps_core) patience.keep_time = kKeepTime;
  return wait_for(gathering, round, patience, *this);
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

Outcome Collective::compare() {
  const auto mine = encode(call_);
  bool all_agree = true;
  bool all_share = true;
  bool any_shares = false;
  for (int peer = 0; peer < size(); ++peer) {
    const auto& words = mailbox(peer, group_.round).signature;
    const Signature theirs{{words[0], words[1]}};
    all_agree = all_agree && agree(mine, theirs);
    const bool shares = decode_call(theirs).is_shared;
    all_share = all_share && shares;
    any_shares = any_shares || shares;
  }
  is_all_shared_ = all_share;
  is_any_shared_ = any_shares;
  if (all_agree) return nullptr;
  std::vector<Signature> calls;
  for (int peer = 0; peer < size(); ++peer) {
    const auto& words = mailbox(peer, group_.round).signature;
    calls.push_back({{words[0], words[1]}});
  }
  return group_.record({Failure::Kind::kMismatch, table_of(calls, group_.options.global_ranks), hint_for(calls)});
}

// Ranks that offer parts of different regions go by staging: a region may be gone on ranks that do not use it. All ranks see all
// offers and so find the same.
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
           !block.mailboxes[round & 1].round.has_reached(round)) {
      if (Clock::now() >= end) return false;
      linger(block.mailboxes[state_->round & 1].round, options.keeps_core);
    }
  }
  return true;
}

Outcome Collective::look() {
  const auto now = Clock::now();
  if (num_looks_++ == 0) first_look_ = now;
  if (group_.is_aborted.load(std::memory_order_acquire)) {
    return group_.record({Failure::Kind::kAborted, {"the group was aborted on this rank"}, ""});
  }
  const auto missing = group_.ranks_not_in(group_.round);
  for (const int peer : missing) {
    if (auto failure = group_.look_after(peer, call_.purpose)) return group_.record(*failure);
  }
  if (options_.find_obstacle && num_looks_ % kLooksPerObstacle == 0) {
    if (auto obstacle = (*options_.find_obstacle)(); !obstacle.empty()) {
      return group_.record({Failure::Kind::kObstacle, {std::move(obstacle)}, ""});
    }
  }
  const auto limit = options_.timeout.value_or(group_.options.timeout);
  if (now - first_look_ < limit || missing.empty()) return nullptr;
  return group_.record(timed_out(limit, missing));
}

Failure Collective::timed_out(milliseconds limit, const std::vector<int>& missing) const {
  Failure failure{Failure::Kind::kTimeout, {}, "", missing};
  for (const int peer : missing) {
    failure.causes.push_back(
        fmt::format("{} has not arrived within {}", group_.describe(peer), base::format_duration(limit)));
  }
  const auto record = note_timeout(fmt::format("{} on group \"{}\"", describe(call_), group_.options.name));
  if (!record.empty()) failure.hint = "what each rank of this host did is in " + record;
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
