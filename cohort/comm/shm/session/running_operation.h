/// RunningOperation: the operation that a session's engine runs, and what ends its wait for other ranks: a signal, or what the
/// watch finds.
/// Thread-safety: of the session's run_mutex_, but for set_completing(), is_completing() and was_interrupted().
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

/// So often a thread that waits for another one's operation looks for an interruption.
constexpr auto kLookInterval = std::chrono::milliseconds(250);
/// Of kLookInterval each, while a group that is to be destroyed waits for an operation.
constexpr int kLooksBeforeWarning = 20;

class RunningOperation {
 public:
  /// `identity` must outlive this; `watch` may be null.
  RunningOperation(const ShmIdentity& identity, OperationWatch* watch);
  RunningOperation(const RunningOperation&) = delete;
  RunningOperation& operator=(const RunningOperation&) = delete;

  /// `options` get what the engine looks at while it waits. All of them must live until the operation has ended.
  void begin(const ShmCall& call, at::TensorList shown, shm::CallOptions& options) {
    call_ = &call;
    shown_ = shown;
    options_ = &options;
    options.find_obstacle = &find_obstacle_;
  }
  /// The interruption that has ended the operation, for its caller; null if none has.
  std::exception_ptr take_interruption() { return std::exchange(interruption_, nullptr); }
  /// An operation of the session was interrupted.
  bool was_interrupted() const { return was_interrupted_; }

  /// The group is to be destroyed, and waits for what was started.
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
  uint64_t delayed_ = 0;  // the last one that the watch knows as delayed
  std::exception_ptr interruption_;
  std::atomic<bool> was_interrupted_ = false;
  std::atomic<bool> is_completing_ = false;
  int num_looks_while_completing_ = 0;
};

}  // namespace cohort::comm
