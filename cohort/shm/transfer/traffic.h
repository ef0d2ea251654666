/// Traffic: the pending transfers of one rank, and their progress. Has no thread and never waits.
///
///     send     unposted --offer()--> (small: done)  offered --accepted, all chunks copied, or taken--> done
///     receive  wish --message arrives--> (small: done)  streams --all chunks or blocks copied--> done
///
/// Thread-safety: one thread at a time.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <vector>

#include "cohort/shm/transfer/channel.h"
#include "cohort/shm/transfer/exchange.h"
#include "cohort/shm/transfer/matching.h"
#include "cohort/shm/transfer/transfer.h"

namespace cohort::shm {

using PendingTransferPtr = std::shared_ptr<PendingTransfer>;

class Traffic {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Traffic(const ExchangeOptions& options);

  /// Begins a transfer, which may be done, or have failed, at once.
  PendingTransferPtr post(PendingTransfer::Kind kind, void* data, Elements elements, int peer, int tag,
                          const CallOptions& options);

  /// Advances every transfer as far as possible now. Returns true if any has advanced.
  bool progress();
  /// Asks Neighbors, and ends transfers that can never be done. Receives everything that has arrived before.
  void look();
  /// Ends transfers whose timeout is over.
  void end_overdue(Clock::time_point now);
  void fail(PendingTransfer& transfer, const Outcome& outcome);
  void fail_all(const Outcome& outcome);

  size_t num_pending() const { return pending_.size(); }
  bool has_sends() const;
  /// time_point::max() if there is none.
  Clock::time_point next_deadline() const;

 private:
  /// The two channels shared with another rank, and their transfers.
  struct Peer {
    ChannelSource out;
    ChannelDestination in;
    std::deque<PendingTransfer*> unposted;  ///< sends for whose offer there was no space, in order
    std::deque<PendingTransfer*> offered;   ///< large sends that are not yet done
    std::deque<PendingTransfer*> streams;   ///< receives that have a large message; the first one is accepted
    Outcome parted;                         ///< the reason why these two exchange nothing any more
  };

  bool is_peer(int rank) const { return rank >= 0 && rank < world_size_ && rank != rank_; }
  /// The number of the rank in texts.
  int name_of(int rank) const;
  Outcome check(const PendingTransfer& transfer) const;
  void add(const PendingTransferPtr& transfer, const CallOptions& options);
  void begin_receive(PendingTransfer& transfer);
  bool progress_sends(int rank);
  bool offer_sends(Peer& peer);
  bool finish_taken(Peer& peer);
  bool move_send(int rank, PendingTransfer& send, const Accepted& accepted);
  bool progress_receives(int rank);
  bool drain(int rank);
  void release_offers(int rank);
  void deliver(int rank, PendingTransfer& receive, const Message& message);
  void accept(int rank, PendingTransfer& receive);
  Place target_of(const PendingTransfer& receive, bool can_read) const;
  bool move_receive(Peer& peer, PendingTransfer& receive);
  void finish(PendingTransfer& transfer, Outcome outcome);
  template <class Predicate>
  void fail_where(const Predicate& predicate, const Outcome& outcome);
  void part(int rank, const Outcome& outcome);
  void close(int rank);
  std::vector<Outcome> look_at_peers();
  Outcome timeout_of(const PendingTransfer& transfer) const;
  Outcome timeout_text(const PendingTransfer& transfer) const;

  const int rank_;
  const int world_size_;
  const std::vector<int> global_ranks_;
  const Regions* const regions_;
  Neighbors& neighbors_;
  Trace* const trace_;
  Bell& own_bell_;
  std::chrono::milliseconds timeout_;
  std::vector<Peer> peers_;
  Matching matching_;
  std::vector<PendingTransferPtr> pending_;
};

}  // namespace cohort::shm
