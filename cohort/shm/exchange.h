/// Exchange: sends and receives between the ranks of a group, matched by tag.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>

#include "cohort/shm/failure.h"
#include "cohort/shm/group.h"

namespace cohort::shm {

/// One send or receive under way. Thread-safe.
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

  virtual ~Exchange() = default;
  /// Any thread. The memory must stay until the transfer is done. Transfers progress while somebody waits and in a
  /// background thread that starts with the first transfer which nobody waits for at once.
  virtual TransferPtr send(const void* data, Elements elements, int destination, int tag, const CallOptions& options = {}) = 0;
  virtual TransferPtr receive(void* data, Elements elements, int source, int tag, const CallOptions& options = {}) = 0;
  /// Blocks until done, failed, or (with a limit) the limit is over: then returns false.
  virtual bool wait(const TransferPtr& transfer, std::optional<std::chrono::milliseconds> limit = {}) = 0;
};

}  // namespace cohort::shm
