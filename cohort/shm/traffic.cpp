#include "cohort/shm/traffic.h"

#include <fmt/format.h>
#include <algorithm>
#include <string>
#include <utility>

#include "cohort/base/text.h"
#include "cohort/shm/trace.h"
#include "cohort/shm/transfer_text.h"

namespace cohort::shm {

using Kind = PendingTransfer::Kind;
using Stage = PendingTransfer::Stage;

Traffic::Traffic(const ExchangeOptions& options)
    : rank_(options.rank),
      world_size_(options.world_size),
      global_ranks_(options.global_ranks),
      neighbours_(*options.neighbours),
      trace_(options.trace),
      own_bell_(*reinterpret_cast<Bell*>(options.channel(options.rank, options.rank))),
      timeout_(options.timeout),
      matching_(options.world_size) {
  peers_.reserve(static_cast<size_t>(world_size_));
  for (int rank = 0; rank < world_size_; ++rank) {
    auto* const bell = reinterpret_cast<Bell*>(options.channel(rank, rank));
    peers_.push_back(
        {ChannelSource(options.channel(rank_, rank), bell), ChannelDestination(options.channel(rank, rank_), bell)});
  }
}

int Traffic::name_of(int rank) const {
  return rank == kAnySource || global_ranks_.empty() ? rank : global_ranks_[static_cast<size_t>(rank)];
}

// ---- beginnings

Outcome Traffic::check(const PendingTransfer& transfer) const {
  const bool is_send = transfer.kind == Kind::kSend;
  const auto refuse = [](std::string cause, std::string hint) {
    return shm::fail({Failure::Kind::kArgument, {std::move(cause)}, std::move(hint)});
  };
  if (transfer.peer == rank_) {
    return refuse(fmt::format("rank {} cannot {} itself", name_of(rank_), is_send ? "send to" : "receive from"),
                  "copy the tensor instead");
  }
  if (!is_peer(transfer.peer) && (is_send || transfer.peer != kAnySource)) {
    return refuse(fmt::format("rank {} is not in the group of {} ranks", transfer.peer, world_size_),
                  fmt::format("give a rank from 0 to {}", world_size_ - 1));
  }
  if (transfer.data == nullptr && transfer.num_bytes > 0) {
    return refuse(fmt::format("no memory was given for {} bytes", transfer.num_bytes), "");
  }
  // Why the two have parted says more than that the group has failed by now.
  if (transfer.peer != kAnySource && peers_[transfer.peer].parted) return peers_[transfer.peer].parted;
  return neighbours_.failure();
}

PendingTransferPtr Traffic::post(Kind kind, void* data, Elements elements, int peer, int tag,
                                 const CallOptions& options) {
  auto transfer = std::make_shared<PendingTransfer>();
  transfer->kind = kind;
  transfer->data = static_cast<std::byte*>(data);
  transfer->num_bytes = elements.num_bytes();
  transfer->dtype = elements.dtype;
  transfer->peer = peer;
  transfer->from = peer;
  transfer->tag = tag;
  transfer->timeout = options.timeout.value_or(timeout_);
  // The peer may have refused an earlier message, of which the send was done.
  if (is_peer(peer)) progress_sends(peer);
  if (auto failure = check(*transfer)) {
    transfer->finish(failure);
    return transfer;
  }
  add(transfer, options);
  if (kind == Kind::kSend) {
    peers_[peer].unposted.push_back(transfer.get());
    progress_sends(peer);
  } else {
    begin_receive(*transfer);
  }
  if (transfer->is_done()) return transfer;
  const auto now = Clock::now();
  // A time-out that does not fit counts as for ever.
  const auto longest = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::time_point::max() - now);
  transfer->deadline = now + std::min(transfer->timeout, longest);
  if (options.find_obstacle) transfer->find_obstacle = *options.find_obstacle;
  return transfer;
}

// Lists the transfer, so that finish() and fail() find it.
void Traffic::add(const PendingTransferPtr& transfer, const CallOptions& options) {
  transfer->index = pending_.size();
  pending_.push_back(transfer);
  if (!trace_) return;
  transfer->trace_id = options.trace_id;
  if (transfer->trace_id != 0) return trace_->start(transfer->trace_id);
  const bool is_send = transfer->kind == Kind::kSend;
  const auto num_elements = transfer->num_bytes / size_of(transfer->dtype);
  transfer->trace_id = trace_->begin({.kind = is_send ? OpKind::kSend : OpKind::kRecv,
                                      .dtype = transfer->dtype,
                                      .is_point_to_point = true,
                                      .root = transfer->peer,
                                      .tag = transfer->tag,
                                      .num_inputs = is_send ? num_elements : 0,
                                      .num_outputs = is_send ? 0 : num_elements,
                                      .timeout_ms = transfer->timeout.count(),
                                      .call_site = options.call_site});
}

void Traffic::begin_receive(PendingTransfer& transfer) {
  // First all that has come, so that a receive from any source chooses among all.
  for (int rank = 0; rank < world_size_; ++rank) {
    if (rank != rank_ && (transfer.from == rank || transfer.from == kAnySource)) drain(rank);
  }
  // A message for an earlier receive did not fit it, and this one shares its fate.
  if (transfer.is_done()) return;
  if (const auto found = matching_.post(&transfer)) deliver(found->source, transfer, found->message);
  for (int rank = 0; rank < world_size_; ++rank) {
    if (rank != rank_ && (transfer.from == rank || transfer.from == kAnySource)) release_offers(rank);
  }
}

// ---- progress

bool Traffic::progress() {
  if (pending_.empty()) return false;
  bool has_moved = false;
  // Sources take turns, so that one that sends without end does not keep the others from a receive from any source.
  const int first = matching_.first_source();
  for (int i = 0; i < world_size_; ++i) {
    const int rank = (first + i) % world_size_;
    if (rank == rank_) continue;
    has_moved |= progress_sends(rank);
    has_moved |= progress_receives(rank);
  }
  return has_moved;
}

bool Traffic::progress_sends(int rank) {
  auto& peer = peers_[rank];
  if (peer.parted) return false;
  if (const auto refusal = peer.out.refusal()) {
    const auto failure = transfer_mismatch(name_of(rank_), name_of(rank), *refusal);
    neighbours_.report(failure);
    part(rank, failure);
    return true;
  }
  const bool has_offered = offer_sends(peer);
  if (peer.offered.empty()) return has_offered;
  const auto accepted = peer.out.accepted();
  const auto found = std::find_if(peer.offered.begin(), peer.offered.end(),
                                  [&](const PendingTransfer* transfer) { return transfer->number == accepted; });
  if (found == peer.offered.end()) return has_offered;
  auto& transfer = **found;
  const auto num_new = peer.out.produce(transfer.data, transfer.num_bytes, transfer.num_moved);
  transfer.num_moved += num_new;
  if (transfer.num_moved == transfer.num_bytes) {
    peer.offered.erase(found);
    finish(transfer, nullptr);
  }
  return has_offered || num_new > 0;
}

bool Traffic::offer_sends(Peer& peer) {
  bool has_offered = false;
  while (!peer.unposted.empty() && peer.out.has_room()) {
    auto& transfer = *peer.unposted.front();
    peer.unposted.pop_front();
    const MessageHeader header{transfer.num_bytes, transfer.tag, transfer.dtype};
    transfer.number = peer.out.offer(header, transfer.data);
    has_offered = true;
    if (header.is_inline()) {
      finish(transfer, nullptr);
    } else {
      transfer.stage = Stage::kStreaming;
      peer.offered.push_back(&transfer);
    }
  }
  return has_offered;
}

bool Traffic::progress_receives(int rank) {
  auto& peer = peers_[rank];
  if (peer.parted) return false;
  const bool has_drained = matching_.wishes_from(rank) && drain(rank);
  if (peer.parted || peer.streams.empty()) return has_drained;
  auto& receive = *peer.streams.front();
  const auto num_new = peer.in.consume(receive.data, receive.num_bytes, receive.num_moved);
  receive.num_moved += num_new;
  if (receive.num_moved == receive.num_bytes) {
    peer.streams.pop_front();
    finish(receive, nullptr);
    if (!peer.streams.empty()) peer.in.accept(peer.streams.front()->number);
  }
  return has_drained || num_new > 0;
}

// Takes note of all messages that the peer offers and gives them to the receives that wait for them.
bool Traffic::drain(int rank) {
  auto& peer = peers_[rank];
  bool has_drained = false;
  while (!peer.parted) {
    const auto header = peer.in.next();
    if (!header) break;
    has_drained = true;
    const Message message{*header, peer.in.num_seen(), header->is_inline()};
    if (Wish* const wish = matching_.arrive(rank, message)) {
      deliver(rank, *static_cast<PendingTransfer*>(wish), message);
    }
    release_offers(rank);
  }
  return has_drained;
}

// Small messages that nobody waits for stay in their offers, so that a sender that is far ahead has to wait. But if they
// fill the table while a receive waits for something else, that may lie behind them: then they move to this rank's memory.
void Traffic::release_offers(int rank) {
  auto& peer = peers_[rank];
  const auto oldest = matching_.oldest_in_offer(rank);
  const auto releasable = oldest ? *oldest - 1 : peer.in.num_seen();
  peer.in.release(releasable);
  if (peer.in.num_seen() - releasable < kNumOffers || !matching_.wishes_from(rank)) return;
  matching_.empty_offers(rank, [&](Message& message) {
    message.payload.resize(message.header.num_bytes);
    peer.in.read_inline(message.number, message.payload.data(), message.payload.size());
  });
  peer.in.release(peer.in.num_seen());
}

void Traffic::deliver(int rank, PendingTransfer& receive, const Message& message) {
  auto& peer = peers_[rank];
  receive.peer = rank;
  receive.number = message.number;
  if (message.header.num_bytes != receive.num_bytes || message.header.dtype != receive.dtype) {
    const Refusal refusal{message.header, receive.num_bytes, receive.dtype};
    peer.in.refuse(refusal);
    const auto failure = transfer_mismatch(name_of(rank), name_of(rank_), refusal);
    fail(receive, failure);
    part(rank, failure);
  } else if (!message.header.is_inline()) {
    receive.stage = Stage::kStreaming;
    peer.streams.push_back(&receive);
    if (peer.streams.size() == 1) peer.in.accept(message.number);
  } else {
    if (message.is_in_offer) {
      peer.in.read_inline(message.number, receive.data, receive.num_bytes);
    } else {
      std::copy(message.payload.begin(), message.payload.end(), receive.data);
    }
    finish(receive, nullptr);
  }
}

// ---- ends

// Takes the transfer from the list; its memory is touched no more.
void Traffic::finish(PendingTransfer& transfer, Outcome outcome) {
  const bool is_good = outcome == nullptr;
  const auto owner = std::move(pending_[transfer.index]);
  if (transfer.index + 1 < pending_.size()) {
    pending_[transfer.index] = std::move(pending_.back());
    pending_[transfer.index]->index = transfer.index;
  }
  pending_.pop_back();
  if (trace_ && is_good) trace_->complete(transfer.trace_id);
  if (trace_ && !is_good) trace_->fail(transfer.trace_id);
  transfer.finish(std::move(outcome));
  // Another thread of this rank may sleep until this transfer is done.
  own_bell_.ring();
}

void Traffic::fail(PendingTransfer& transfer, const Outcome& outcome) {
  const int rank = transfer.peer;
  const bool was_streaming = transfer.stage == Stage::kStreaming;
  matching_.withdraw(&transfer);
  if (rank != kAnySource) {
    std::erase(peers_[rank].unposted, &transfer);
    std::erase(peers_[rank].offered, &transfer);
    std::erase(peers_[rank].streams, &transfer);
  }
  // Before it is done: who sees this failure sees the group's too.
  const auto kind = outcome->kind;
  const bool is_own =
      kind == Failure::Kind::kTimeout || kind == Failure::Kind::kMismatch || kind == Failure::Kind::kObstacle;
  if (is_own) neighbours_.report(outcome);
  finish(transfer, outcome);
  // The other end may be in the middle of this message.
  if (was_streaming) part(rank, outcome);
}

template <class Predicate>
void Traffic::fail_where(const Predicate& predicate, const Outcome& outcome) {
  // From the start again after each: failing one may fail others.
  for (size_t i = 0; i < pending_.size();) {
    if (predicate(*pending_[i])) {
      fail(*pending_[i], outcome);
      i = 0;
    } else {
      ++i;
    }
  }
}

void Traffic::fail_all(const Outcome& outcome) {
  fail_where([](const PendingTransfer&) { return true; }, outcome);
}

void Traffic::part(int rank, const Outcome& outcome) {
  if (peers_[rank].parted) return;
  peers_[rank].parted = outcome;
  fail_where([&](const PendingTransfer& transfer) { return transfer.peer == rank; }, outcome);
}

std::vector<Outcome> Traffic::look_at_peers() {
  const bool is_any = matching_.wishes_from(kAnySource);
  std::vector<Outcome> lost(static_cast<size_t>(world_size_));
  for (int rank = 0; rank < world_size_; ++rank) {
    const auto concerns = [&](const PendingTransferPtr& transfer) { return transfer->peer == rank; };
    if (rank == rank_) continue;
    if (is_any || std::any_of(pending_.begin(), pending_.end(), concerns)) lost[rank] = neighbours_.look(rank);
  }
  return lost;
}

void Traffic::look() {
  const auto lost = look_at_peers();
  const auto failure = neighbours_.failure();
  // What came before a peer was lost counts more than the loss, and a refusal explains more than what it led to. Once is
  // enough: it takes all that fits in a channel.
  progress();
  if (failure) return fail_all(failure);
  Outcome last;
  int num_left = 0;
  for (int rank = 0; rank < world_size_; ++rank) {
    if (rank == rank_) continue;
    if (lost[rank]) fail_where([&](const PendingTransfer& transfer) { return transfer.peer == rank; }, lost[rank]);
    if (const auto& reason = lost[rank] ? lost[rank] : peers_[rank].parted) {
      last = reason;
    } else {
      ++num_left;
    }
  }
  if (num_left > 0 || !last) return;
  fail_where([](const PendingTransfer& transfer) { return transfer.peer == kAnySource; }, last);
}

void Traffic::end_overdue(Clock::time_point now) {
  for (size_t i = 0; i < pending_.size();) {
    if (pending_[i]->deadline <= now) {
      fail(*pending_[i], timeout_of(*pending_[i]));
      i = 0;
    } else {
      ++i;
    }
  }
}

Traffic::Clock::time_point Traffic::next_deadline() const {
  auto next = Clock::time_point::max();
  for (const auto& transfer : pending_) next = std::min(next, transfer->deadline);
  return next;
}

Outcome Traffic::timeout_of(const PendingTransfer& transfer) const {
  auto text = timeout_text(transfer);
  const auto peer = transfer.peer == kAnySource ? "" : neighbours_.describe(transfer.peer);
  if (peer.empty()) return text;
  auto failure = *text;
  failure.causes.insert(failure.causes.begin(), peer + " has not answered");
  failure.missing = {transfer.peer};
  return shm::fail(std::move(failure));
}

Outcome Traffic::timeout_text(const PendingTransfer& transfer) const {
  const TransferState state{name_of(rank_),     name_of(transfer.peer), transfer.tag,
                            transfer.num_bytes, transfer.num_moved,     transfer.stage == Stage::kStreaming,
                            transfer.timeout};
  if (transfer.kind == Kind::kSend) return send_timeout(state);
  std::vector<std::pair<int, std::vector<int32_t>>> offers;
  for (int rank = 0; rank < world_size_; ++rank) {
    if (transfer.peer != rank && transfer.peer != kAnySource) continue;
    auto tags = matching_.waiting_tags(rank);
    if (!tags.empty()) offers.emplace_back(name_of(rank), std::move(tags));
  }
  return receive_timeout(state, offers);
}

bool Traffic::has_sends() const {
  return std::any_of(pending_.begin(), pending_.end(),
                     [](const auto& transfer) { return transfer->kind == PendingTransfer::Kind::kSend; });
}

}  // namespace cohort::shm
