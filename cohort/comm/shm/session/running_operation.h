/// RunningOperation: the operation that a session's engine runs. It ends the operation's wait for other ranks after a signal, or
/// if the watch finds a reason.
/// Thread-safety: guarded by the session's run_mutex_, except set_completing(), is_completing() and was_interrupted().
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <utility>

#include "cohort/comm/shm/shm_call.h"
#include "cohort/comm/watch/operation_watch.h"
#include "cohort/shm/engine/group.h"

namespace cohort::comm {

/// The interval in which a thread that waits for another thread's operation checks for an interruption.
constexpr auto kLookInterval = std::chrono::milliseconds(250);
/// The number of such checks before a warning, while a group that is to be destroyed waits for an operation.
constexpr int kLooksBeforeWarning = 20;

class RunningOperation {
 public:
  /// `identity` must outlive this; `watch` may be null.
  RunningOperation(const ShmIdentity& identity, OperationWatch* watch);
  RunningOperation(const RunningOperation&) = delete;
  RunningOperation& operator=(const RunningOperation&) = delete;

  /// Gives `options` the check that the engine makes while it waits. All arguments must live until the operation has ended.
  void begin(const ShmCall& call, at::TensorList shown, shm::CallOptions& options) {
    call_ = &call;
    shown_ = shown;
    options_ = &options;
    options.find_obstacle = &find_obstacle_;
  }
  /// Returns the interruption that has ended the operation, for its caller; null if nothing has.
  std::exception_ptr take_interruption() { return std::exchange(interruption_, nullptr); }
  /// Whether an operation of the session was interrupted.
  bool was_interrupted() const { return was_interrupted_; }

  /// Set while the group is to be destroyed and waits for operations that have started.
  void set_completing(bool is_completing) { is_completing_ = is_completing; }
  bool is_completing() const { return is_completing_; }

 private:
  std::string find_obstacle();
  void warn_of_long_wait() const;

  const ShmIdentity& identity_;
  OperationWatch* const watch_;
  const std::function<std::string()> find_obstacle_;
  const ShmCall* call_ = nullptr;
  at::TensorList shown_;
  const shm::CallOptions* options_ = nullptr;
  uint64_t delayed_ = 0;  // the last operation that the watch knows as delayed
  std::exception_ptr interruption_;
  std::atomic<bool> was_interrupted_ = false;
  std::atomic<bool> is_completing_ = false;
  int num_looks_while_completing_ = 0;
};

}  // namespace cohort::comm
