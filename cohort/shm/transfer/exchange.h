/// Exchange: sends and receives between the ranks of a group, matched by tag.
///
/// A receive takes the oldest message with its tag from its source; messages with other tags may overtake, and a receive from any
/// source serves the sources in turn. Message and receive must agree in dtype and size; otherwise both sides fail with kMismatch.
///
/// A send is done when its memory is not needed any more. A message of up to 224 bytes is done at once, as long as the receiver
/// has at most 31 older ones waiting. A longer one is done when the receiver has received all but the last 128 KiB. If a message
/// has more than 16 KiB and `regions` says that one of the two ranks reaches the other's memory, it is copied once, by both ranks
/// (joint_copy.h), and is done when all of it has been received.
///
/// The memory given to send() and receive() must stay valid until is_done(), and is not used afterwards, with one exception: a
/// sender that was stopped while the receiver gave up may still write one block of 32 KiB to the receive's memory. That memory
/// goes into quarantine (Arena::quarantine). A receiver that was stopped while the sender gave up never reports success.
///
/// Timeouts count from the call. After a mismatch, or a failure in the middle of a transfer, later transfers between the two
/// ranks fail with the same cause. Other transfers go on, unless Neighbors says that the group has failed.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/shm/terms/call_options.h"
#include "cohort/shm/terms/failure.h"
#include "cohort/shm/transfer/waiting.h"

namespace cohort::shm {

/// One send or receive. Thread-safe. May outlive the Exchange; it is then done.
class Transfer {
 public:
  virtual ~Transfer() = default;
  virtual bool is_done() const = 0;
  /// Returns the failure. Null while running and after success.
  virtual Outcome failure() const = 0;
  /// Returns the sender, once a receive from any rank is done.
  virtual int source() const = 0;
};
using TransferPtr = std::shared_ptr<Transfer>;

class Exchange {
 public:
  static constexpr int kAnySource = -1;
  static size_t channel_bytes();

  /// Lets pending transfers fail with kAborted. Requires that no thread is in a function of this object.
  virtual ~Exchange() = default;
  /// Starts a transfer. Any thread. The memory must stay valid until the transfer is done. Transfers make progress while a thread
  /// waits, and in a background thread, which starts with the first transfer that is not done at once, and helps if no thread has
  /// waited for about 1 ms.
  virtual TransferPtr send(const void* data, Elements elements, int destination, int tag,
                           const CallOptions& options = {}) = 0;
  virtual TransferPtr receive(void* data, Elements elements, int source, int tag, const CallOptions& options = {}) = 0;
  /// Blocks until the transfer is done or has failed. Returns false if the limit (if given) is over before.
  virtual bool wait(const TransferPtr& transfer, std::optional<std::chrono::milliseconds> limit = {}) = 0;

  /// Blocks until no send is pending. Returns false if the limit is over before. Leaves receives as they are.
  virtual bool wait_for_sends(std::chrono::milliseconds limit) = 0;

  /// Makes a waiting thread ask Neighbors at once instead of after its current sleep. Any thread, also from Neighbors.
  virtual void interrupt() = 0;
};

/// The exchange's view of its group. Any thread; called with the exchange locked, so only interrupt() may be called from here.
class Neighbors {
 public:
  virtual ~Neighbors() = default;
  /// Returns why this rank can do nothing more: the group has failed, or abort() was called. Called for every transfer, so it
  /// must be cheap.
  virtual Outcome failure() = 0;
  /// Called about every 50 ms while waiting. Returns why `peer` will neither send nor receive: its process has ended, or it has
  /// left. Messages that it has sent before are still received.
  virtual Outcome look(int peer) = 0;
  /// Returns "rank 2 (pid 4711 on node-a)" for timeouts; empty if nothing is known of it.
  virtual std::string describe(int /*peer*/) const { return {}; }
  /// Reports that a transfer failed for a reason other than a wrong argument or a failure of Neighbors.
  virtual void report(const Outcome&) {}
};

class Regions;
class Trace;

struct ExchangeOptions {
  int rank = 0;
  int world_size = 1;
  Patience patience = {};
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  /// Returns channel_bytes() of zeroed memory for each ordered pair, aligned to 4 KiB, the same on all ranks. The channel of a
  /// rank to itself has its bell.
  std::function<std::byte*(int source, int destination)> channel;
  /// The numbers of the ranks in failures: GroupOptions::global_ranks. If empty, the ranks in the group are used.
  std::vector<int> global_ranks = {};
  /// The memory of tensors that other ranks can reach. May be null; must outlive the exchange.
  const Regions* regions = nullptr;
  /// Must outlive the exchange.
  Neighbors* neighbors = nullptr;
  /// May be null.
  Trace* trace = nullptr;
};
std::unique_ptr<Exchange> make_exchange(const ExchangeOptions& options);

}  // namespace cohort::shm
