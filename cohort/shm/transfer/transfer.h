/// PendingTransfer: a send or receive as its exchange keeps it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "cohort/shm/transfer/exchange.h"
#include "cohort/shm/transfer/joint_copy.h"
#include "cohort/shm/transfer/matching.h"

namespace cohort::shm {

/// All but the functions of Transfer belongs to the exchange and is guarded by its lock.
class PendingTransfer final : public Transfer, public Wish {
 public:
  enum class Kind { kSend, kReceive };
  /// kStreaming: the peer may be in the middle of it, so that giving up parts the two ranks.
  enum class Stage { kPosted, kStreaming };

  // Acquire: partner is finish(), which publishes the outcome and the received bytes.
  bool is_done() const override { return is_done_.load(std::memory_order_acquire); }
  Outcome failure() const override { return is_done() ? outcome_ : nullptr; }
  int source() const override { return is_done() ? peer : -1; }

  // Release: partner is is_done().
  void finish(Outcome outcome) {
    outcome_ = std::move(outcome);
    is_done_.store(true, std::memory_order_release);
  }

  Kind kind = Kind::kSend;
  Stage stage = Stage::kPosted;
  std::byte* data = nullptr;  ///< never written for a send
  size_t num_bytes = 0;
  DType dtype = DType::kBytes;
  /// Of a receive from any source: kAnySource until it has a message.
  int peer = kAnySource;
  uint64_t number = 0;   ///< of the message in its channel
  size_t num_moved = 0;  ///< bytes that have gone through the ring, or been copied
  Place place = {};      ///< where the sender's memory is, if the receiver may read it there
  /// Once the receiver has accepted a message that the two copy without the ring.
  std::optional<JointCopy> joint = {};
  std::chrono::milliseconds timeout{};
  std::chrono::steady_clock::time_point deadline{};
  uint64_t trace_id = 0;
  size_t index = 0;  ///< in the list of what is pending
  /// A copy, because the transfer outlives the call. Asked by the thread that waits for this transfer.
  std::function<std::string()> find_obstacle;

 private:
  std::atomic<bool> is_done_ = false;
  Outcome outcome_;  ///< written before is_done_, constant afterwards
};

}  // namespace cohort::shm
