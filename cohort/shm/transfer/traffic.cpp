#include "cohort/shm/transfer/traffic.h"

#include <fmt/format.h>
#include <algorithm>
#include <string>
#include <utility>

#include "cohort/base/system/deadline.h"
#include "cohort/base/text/text.h"
#include "cohort/shm/arena/process_arena.h"
#include "cohort/shm/memory/regions.h"
#include "cohort/shm/trace/trace.h"
#include "cohort/shm/transfer/transfer_text.h"

namespace cohort::shm {

using Kind = PendingTransfer::Kind;
using Stage = PendingTransfer::Stage;

Traffic::Traffic(const ExchangeOptions& options)
    : rank_(options.rank),
      world_size_(options.world_size),
      global_ranks_(options.global_ranks),
      regions_(options.regions),
      neighbors_(*options.neighbors),
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

// ---- beginning of transfers

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
  // The reason for the first failure between the two says more than that the group has failed by now.
  if (transfer.peer != kAnySource && peers_[transfer.peer].parted) return peers_[transfer.peer].parted;
  return neighbors_.failure();
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
  // The peer may have refused an earlier message whose send was already done.
  if (is_peer(peer)) progress_sends(peer);
  if (auto failure = check(*transfer)) {
    transfer->finish(failure);
    return transfer;
  }
  add(transfer, options);
  if (kind == Kind::kSend) {
    if (regions_ && JointCopy::suits(transfer->num_bytes)) transfer->place = regions_->find(data, transfer->num_bytes);
    peers_[peer].unposted.push_back(transfer.get());
    progress_sends(peer);
  } else {
    begin_receive(*transfer);
  }
  if (transfer->is_done()) return transfer;
  transfer->deadline = base::deadline_after(transfer->timeout);
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
  // First reads everything that has arrived, so that a receive from any source chooses among all messages.
  for (int rank = 0; rank < world_size_; ++rank) {
    if (rank != rank_ && (transfer.from == rank || transfer.from == kAnySource)) drain(rank);
  }
  // If a message for an earlier receive did not fit, this receive fails as well.
  if (transfer.is_done()) return;
  if (const auto found = matching_.post(&transfer)) deliver(found->source, transfer, found->message);
  for (int rank = 0; rank < world_size_; ++rank) {
    if (rank != rank_ && (transfer.from == rank || transfer.from == kAnySource)) release_offers(rank);
  }
}

// ---- progress

namespace {

PendingTransfer* find_number(const std::deque<PendingTransfer*>& transfers, uint64_t number) {
  const auto found = std::find_if(transfers.begin(), transfers.end(),
                                  [&](const PendingTransfer* transfer) { return transfer->number == number; });
  return found == transfers.end() ? nullptr : *found;
}

}  // namespace

bool Traffic::progress() {
  if (pending_.empty()) return false;
  bool has_moved = false;
  // Sources are served in turn, so that one that sends endlessly does not block the others in a receive from any source.
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
  const bool has_finished = finish_taken(peer);
  if (const auto refusal = peer.out.refusal()) {
    const auto failure = transfer_mismatch(name_of(rank_), name_of(rank), *refusal);
    neighbors_.report(failure);
    part(rank, failure);
    return true;
  }
  const bool has_offered = offer_sends(peer);
  if (peer.offered.empty()) return has_finished || has_offered;
  const auto accepted = peer.out.accepted();
  auto* const send = find_number(peer.offered, accepted.number);
  const bool has_moved = send && move_send(rank, *send, accepted);
  return has_finished || has_offered || has_moved;
}

// Returns true if the transfer has advanced.
bool Traffic::move_send(int rank, PendingTransfer& send, const Accepted& accepted) {
  auto& peer = peers_[rank];
  if (!accepted.is_joint) {
    const auto num_new = peer.out.produce(send.data, send.num_bytes, send.num_moved);
    send.num_moved += num_new;
    if (send.num_moved == send.num_bytes) {
      std::erase(peer.offered, &send);
      finish(send, nullptr);
    }
    return num_new > 0;
  }
  if (!send.joint) {
    const bool can_help = regions_ && accepted.target.is_shared();
    auto target = can_help ? regions_->hold(rank, accepted.target, send.num_bytes) : nullptr;
    send.joint.emplace(peer.out.joint(), JointCopy::End::kSender, send.number,
                       JointCopy::Way{send.data, target.get(), send.num_bytes, target});
  }
  const auto num_new = send.joint->copy_some();
  if (num_new > 0) peer.out.ring();
  send.num_moved = send.joint->num_copied();
  return num_new > 0;
}

// Ends the sends whose data the receiver has copied directly from this rank's memory.
bool Traffic::finish_taken(Peer& peer) {
  bool has_finished = false;
  for (uint64_t i = 0; i < kNumOffers; ++i) {
    const auto number = peer.out.next_taken();
    if (number == 0) break;
    auto* const send = find_number(peer.offered, number);
    if (!send) continue;
    std::erase(peer.offered, send);
    finish(*send, nullptr);
    has_finished = true;
  }
  return has_finished;
}

bool Traffic::offer_sends(Peer& peer) {
  bool has_offered = false;
  while (!peer.unposted.empty() && peer.out.has_room()) {
    auto& transfer = *peer.unposted.front();
    peer.unposted.pop_front();
    const MessageHeader header{transfer.num_bytes, transfer.tag, transfer.dtype, transfer.place};
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
  const auto num_before = receive.num_moved;
  const bool is_complete = move_receive(peer, receive);
  const bool has_moved = is_complete || receive.num_moved != num_before;
  if (is_complete) {
    peer.streams.pop_front();
    finish(receive, nullptr);
    if (!peer.streams.empty()) accept(rank, *peer.streams.front());
  }
  return has_drained || has_moved;
}

// Returns true once everything has arrived.
bool Traffic::move_receive(Peer& peer, PendingTransfer& receive) {
  if (!receive.joint) {
    receive.num_moved += peer.in.consume(receive.data, receive.num_bytes, receive.num_moved);
    return receive.num_moved == receive.num_bytes;
  }
  receive.joint->copy_some();
  receive.num_moved = receive.joint->num_copied();
  if (!receive.joint->take()) return false;
  peer.in.note_taken(receive.number);
  return true;
}

// Reads all messages that the peer offers and gives them to the receives that wait for them.
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

// Small messages that nobody waits for stay in their offers, so that a sender that is far ahead has to wait. But if they fill the
// table while a receive waits for a message that may come after them, they are moved to this rank's memory.
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
    receive.place = message.header.place;
    peer.streams.push_back(&receive);
    if (peer.streams.size() == 1) accept(rank, receive);
  } else {
    if (message.is_in_offer) {
      peer.in.read_inline(message.number, receive.data, receive.num_bytes);
    } else {
      std::copy(message.payload.begin(), message.payload.end(), receive.data);
    }
    finish(receive, nullptr);
  }
}

// Skips the ring if one of the two reaches the other's memory. If the sender has given up the message meanwhile, it makes no
// progress.
void Traffic::accept(int rank, PendingTransfer& receive) {
  auto& peer = peers_[rank];
  Accepted message{receive.number};
  if (regions_ && JointCopy::suits(receive.num_bytes) && peer.in.can_note_taken()) {
    auto source = receive.place.is_shared() ? regions_->hold(rank, receive.place, receive.num_bytes) : nullptr;
    message.target = target_of(receive, source != nullptr);
    message.is_joint = source || message.target.is_shared();
    receive.joint.emplace(peer.in.joint(), JointCopy::End::kReceiver, receive.number,
                          JointCopy::Way{source.get(), receive.data, receive.num_bytes, source});
  }
  if (!message.is_joint) receive.joint.reset();
  if (!receive.joint || receive.joint->begin()) peer.in.accept(message);
}

// Returns the memory to which the sender may write. If the sender must write because this rank cannot read, only arenas will do,
// which it always reaches.
Place Traffic::target_of(const PendingTransfer& receive, bool can_read) const {
  if (can_read && receive.num_bytes <= JointCopy::kBlockBytes) return {};
  const auto place = regions_->find(receive.data, receive.num_bytes);
  return can_read || place.region == Place::kInArena ? place : Place{};
}

// ---- end of transfers

// Removes the transfer from the list; its memory is not used any more.
void Traffic::finish(PendingTransfer& transfer, Outcome outcome) {
  const bool is_good = outcome == nullptr;
  const auto owner = std::move(pending_[transfer.index]);
  if (transfer.index + 1 < pending_.size()) {
    pending_[transfer.index] = std::move(pending_.back());
    pending_[transfer.index]->index = transfer.index;
  }
  pending_.pop_back();
  transfer.joint.reset();
  if (trace_ && is_good) trace_->complete(transfer.trace_id);
  if (trace_ && !is_good) trace_->fail(transfer.trace_id);
  transfer.finish(std::move(outcome));
  // Another thread of this rank may sleep until this transfer is done.
  own_bell_.ring();
}

void Traffic::fail(PendingTransfer& transfer, const Outcome& outcome) {
  const int rank = transfer.peer;
  const bool was_streaming = transfer.stage == Stage::kStreaming;
  if (was_streaming) close(rank);
  matching_.withdraw(&transfer);
  if (rank != kAnySource) {
    std::erase(peers_[rank].unposted, &transfer);
    std::erase(peers_[rank].offered, &transfer);
    std::erase(peers_[rank].streams, &transfer);
  }
  // Before the transfer is done, so that a thread that sees this failure also sees the group's failure.
  const auto kind = outcome->kind;
  const bool is_own =
      kind == Failure::Kind::kTimeout || kind == Failure::Kind::kMismatch || kind == Failure::Kind::kObstacle;
  if (is_own) neighbors_.report(outcome);
  finish(transfer, outcome);
  // The other end may be in the middle of this message.
  if (was_streaming) part(rank, outcome);
}

template <class Predicate>
void Traffic::fail_where(const Predicate& predicate, const Outcome& outcome) {
  // Starts over after each, because failing one may fail others.
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
  close(rank);
  finish_taken(peers_[rank]);  // sends that are complete count as done
  fail_where([&](const PendingTransfer& transfer) { return transfer.peer == rank; }, outcome);
}

// Stops all copying between the two ranks, except for the current block of a sender that was stopped. Must be called before their
// transfers are done, because their memory may then be used for something else.
void Traffic::close(int rank) {
  auto& peer = peers_[rank];
  JointCopy::close(peer.out.joint());
  if (peer.streams.empty() || !peer.streams.front()->joint) return;
  auto& receive = *peer.streams.front();
  if (!receive.joint->close()) return;
  if (auto* const arena = arena_of(receive.data)) arena->quarantine(receive.data, receive.num_bytes);
}

std::vector<Outcome> Traffic::look_at_peers() {
  const bool is_any = matching_.wishes_from(kAnySource);
  std::vector<Outcome> lost(static_cast<size_t>(world_size_));
  for (int rank = 0; rank < world_size_; ++rank) {
    const auto concerns = [&](const PendingTransferPtr& transfer) { return transfer->peer == rank; };
    if (rank == rank_) continue;
    if (is_any || std::any_of(pending_.begin(), pending_.end(), concerns)) lost[rank] = neighbors_.look(rank);
  }
  return lost;
}

void Traffic::look() {
  const auto lost = look_at_peers();
  const auto failure = neighbors_.failure();
  // Messages that came before a peer was lost count more than the loss, and a refusal explains more than its consequences. Once
  // is enough: it reads all that fits in a channel.
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
  // Transfers that have been completed meanwhile are done.
  if (next_deadline() <= now) progress();
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
  const auto peer = transfer.peer == kAnySource ? "" : neighbors_.describe(transfer.peer);
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
