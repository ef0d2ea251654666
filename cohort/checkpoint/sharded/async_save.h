/// async_save: writes a checkpoint while training goes on.
///
///     auto save = cohort::checkpoint::async_save(state, "runs/7/step-100");
///     ...                                        // train
///     save.wait();                               // throws if it failed
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "cohort/checkpoint/sharded/sharded_checkpoint.h"
#include "cohort/export.h"

namespace cohort::checkpoint {

/// A save that may still run. Copies refer to the same save. If nobody waits for it, a failure is printed as a warning.
class COHORT_API AsyncSave {
 public:
  struct State;
  explicit AsyncSave(std::shared_ptr<State> state) : state_(std::move(state)) {}

  /// Blocks until the checkpoint is complete. Throws what save_sharded would have thrown.
  void wait();
  bool done() const;
  /// Returns how long training was blocked, by planning with the other ranks and by the copy.
  std::chrono::nanoseconds staging_time() const;

 private:
  std::shared_ptr<State> state_;
};

struct AsyncSaveOptions : SaveShardedOptions {
  /// While the previous save runs on any rank: if true, wait for it; if false, throw CheckpointException at once.
  bool wait_for_previous = true;
};

/// As save_sharded, but returns when this rank's shards are copied, and writes them in a thread. The memory of the copy is
/// reused by the next save; at most one save is in flight. The ranks finish over a group of their own (Gloo), which is made at
/// the first save of a group, so training may use the group meanwhile. A process that ends waits for its save.
/// Thread-safety: one thread at a time.
/// Throws as save_sharded for errors in the state; AsyncSave::wait() throws later errors.
COHORT_API AsyncSave async_save(const ShardedStateDict& state, const std::string& folder,
                                const AsyncSaveOptions& options = {});

}  // namespace cohort::checkpoint
