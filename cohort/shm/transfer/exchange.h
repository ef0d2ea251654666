/// Exchange: sends and receives between the ranks of a group, matched by tag.
///
/// A receive takes the oldest message with its tag from its source; other tags may overtake, and a receive from any source
/// takes turns. Message and receive must agree in dtype and size, else both sides fail with kMismatch.
///
/// A send is done when nobody needs its memory any more. Messages of up to 224 bytes: while the receiver has not more than 31
/// older ones lying there. Longer ones: when the receiver has taken all but the last 128 KiB. Those of more than 16 KiB, if
/// `regions` says that one of the two reaches the other's memory: when the receiver has taken all; they are copied once, by
/// both (joint_copy.h).
///
/// The memory given to send() and receive() must stay until is_done(), and is not touched afterwards, with one exception: a
/// sender that was stopped while the receiver gave up may still write one block of 32 KiB into what was to be received. That
/// memory goes into quarantine (Arena::quarantine). A receiver that was stopped while the sender gave up never reports success.
///
/// Time-outs count from the call. A transfer that failed in the middle, or a mismatch, parts the two ranks: later transfers
/// between them fail with the same cause. Others go on, unless Neighbours says that the group has failed.
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

/// One send or receive under way. Thread-safe. May outlive the Exchange: it is done by then.
class Transfer {
 public:
  virtual ~Transfer() = default;
  virtual bool is_done() const = 0;
  /// Null while running and after success.
  virtual Outcome failure() const = 0;
  /// Who sent it, once a receive from any rank is done.
  virtual int source() const = 0;
};
using TransferPtr = std::shared_ptr<Transfer>;

class Exchange {
 public:
  static constexpr int kAnySource = -1;
  static size_t channel_bytes();

  /// What is pending fails with kAborted. Requires that no thread is in a function of this object.
  virtual ~Exchange() = default;
  /// Any thread. The memory must stay until the transfer is done. Transfers progress while somebody waits and in a
  /// background thread that starts with the first transfer which is not done at once, and helps when nobody has waited for
  /// about 1 ms.
  virtual TransferPtr send(const void* data, Elements elements, int destination, int tag,
                           const CallOptions& options = {}) = 0;
  virtual TransferPtr receive(void* data, Elements elements, int source, int tag, const CallOptions& options = {}) = 0;
  /// Blocks until done, failed, or (with a limit) the limit is over: then returns false.
  virtual bool wait(const TransferPtr& transfer, std::optional<std::chrono::milliseconds> limit = {}) = 0;

  /// Blocks until no send is pending, or the limit is over: then returns false. Receives are left as they are.
  virtual bool wait_for_sends(std::chrono::milliseconds limit) = 0;

  /// Makes a waiting thread ask Neighbours at once, not after the next slice of sleep. Any thread, also from Neighbours.
  virtual void interrupt() = 0;
};

/// What an exchange wants to know about its group. Any thread; called with the exchange locked, so only interrupt() may be
/// called from here.
class Neighbours {
 public:
  virtual ~Neighbours() = default;
  /// Why this rank can do no more: the group has failed, or abort(). Asked for every transfer, so it should cost little.
  virtual Outcome failure() = 0;
  /// Asked about every 50 ms while waiting. Of a peer: why it will neither send nor receive: its process is gone, or it has
  /// left. What it had sent before is received all the same.
  virtual Outcome look(int peer) = 0;
  /// "rank 2 (pid 4711 on node-a)", to be named by a time-out; empty: nothing is known of it.
  virtual std::string describe(int /*peer*/) const { return {}; }
  /// A transfer failed for another reason than a wrong argument or those given by Neighbours.
  virtual void report(const Outcome&) {}
};

class Regions;
class Trace;

struct ExchangeOptions {
  int rank = 0;
  int world_size = 1;
  Patience patience = {};
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  /// channel_bytes() of zeroed memory for each ordered pair, aligned to 4 KiB, the same on all ranks; that of a rank to
  /// itself holds its bell.
  std::function<std::byte*(int source, int destination)> channel;
  /// What failures call the ranks: GroupOptions::global_ranks. Empty: by their numbers.
  std::vector<int> global_ranks = {};
  /// Where the ranks' tensors may lie so that the others reach them. May be null; must outlive the exchange.
  const Regions* regions = nullptr;
  /// Must outlive the exchange.
  Neighbours* neighbours = nullptr;
  /// May be null.
  Trace* trace = nullptr;
};
std::unique_ptr<Exchange> make_exchange(const ExchangeOptions& options);

}  // namespace cohort::shm
