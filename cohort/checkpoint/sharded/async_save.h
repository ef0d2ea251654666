/// async_save: training goes on while its checkpoint is written.
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

/// A save that may not have ended. Copies are of the same save. A failure that nobody waited for is printed as a warning.
class COHORT_API AsyncSave {
 public:
  struct State;
  explicit AsyncSave(std::shared_ptr<State> state) : state_(std::move(state)) {}

  /// Blocks until the checkpoint is complete. Throws what save_sharded would have thrown.
  void wait();
  bool done() const;
  /// How long training stood still: planning with the other ranks and the copy.
  std::chrono::nanoseconds staging_time() const;

 private:
  std::shared_ptr<State> state_;
};

struct AsyncSaveOptions : ShardedSaveOptions {
  /// While the save before has not ended on all ranks: wait for it, or throw CheckpointException at once.
  bool wait_for_previous = true;
};

/// As save_sharded, but returns when this rank's part is copied, and writes it in a thread. The copy lies in memory that is kept
/// and used again by the next save; at most one save is in flight. The ranks finish over a group of their own (Gloo), made at the
/// first save of a group, so training may use the group meanwhile. A process that ends waits for its save.
/// Thread-safety: one thread at a time.
/// Throws as save_sharded for what is wrong with the state; what happens later AsyncSave::wait() throws.
COHORT_API AsyncSave async_save(const ShardedStateDict& state, const std::string& folder,
                                const AsyncSaveOptions& options = {});

}  // namespace cohort::checkpoint
