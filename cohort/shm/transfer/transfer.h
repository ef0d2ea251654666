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

/// Except for the functions of Transfer, everything belongs to the exchange and is guarded by its lock.
class PendingTransfer final : public Transfer, public Wish {
 public:
  enum class Kind { kSend, kReceive };
  /// kStreaming: the peer may be in the middle of it, so giving up makes later transfers between the two ranks fail.
  enum class Stage { kPosted, kStreaming };

  // Acquire. Paired with: finish(), which publishes the outcome and the received bytes.
  bool is_done() const override { return is_done_.load(std::memory_order_acquire); }
  Outcome failure() const override { return is_done() ? outcome_ : nullptr; }
  int source() const override { return is_done() ? peer : -1; }

  // Release. Paired with: is_done().
  void finish(Outcome outcome) {
    outcome_ = std::move(outcome);
    is_done_.store(true, std::memory_order_release);
  }

  Kind kind = Kind::kSend;
  Stage stage = Stage::kPosted;
  std::byte* data = nullptr;  ///< never written for a send
  size_t num_bytes = 0;
  DType dtype = DType::kBytes;
  /// For a receive from any source, kAnySource until it has a message.
  int peer = kAnySource;
  uint64_t number = 0;   ///< the message's number in its channel
  size_t num_moved = 0;  ///< bytes that were streamed or copied
  Place place = {};      ///< the sender's memory, if the receiver may read it there
  /// Set once the receiver has accepted a message that is copied without the ring.
  std::optional<JointCopy> joint = {};
  std::chrono::milliseconds timeout{};
  std::chrono::steady_clock::time_point deadline{};
  uint64_t trace_id = 0;
  size_t index = 0;  ///< in the list of pending transfers
  /// A copy, because the transfer outlives the call. Called by the thread that waits for this transfer.
  std::function<std::string()> find_obstacle;

 private:
  std::atomic<bool> is_done_ = false;
  Outcome outcome_;  ///< written before is_done_, constant afterwards
};

}  // namespace cohort::shm
