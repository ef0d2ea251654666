/// RunCheckpoints: what a run resumes from and what it saves: checkpoints in a folder, and memory snapshots
/// (TrainerOptions::checkpoint).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "cohort/checkpoint/checkpointer/checkpointer.h"
#include "cohort/checkpoint/recovery/memory_snapshot.h"
#include "cohort/train/trainer/run_state.h"
#include "cohort/train/trainer/trainer_core.h"

namespace cohort::train::detail {

class RunCheckpoints {
 public:
  /// Both must outlive this.
  RunCheckpoints(TrainerCore& core, RunState& state);

  /// Resumes from the newest state, if there is one. Collective.
  void resume();
  /// Saves what is due, after a step of the optimizer or after an epoch. Collective.
  void after_step();
  void after_epoch();
  /// Saves at the end of the run, and waits until everything is saved. Collective.
  void finish();
  /// Whether a signal asked for the end.
  bool stop_requested() const { return folder_ && folder_->stop_requested(); }
  /// Whether CheckpointOptions::monitor decides which checkpoints are kept.
  bool needs_monitor() const { return folder_ && options_.keep_best > 0; }

 private:
  /// The checkpoint that was saved or loaded last.
  struct Last {
    int64_t step = -1;
    std::optional<double> metric = {};
    bool is_within_epoch = false;
  };

  std::optional<checkpoint::SavedCheckpoint> open_folder();
  std::optional<int64_t> load(const std::optional<checkpoint::SavedCheckpoint>& saved);
  void tell_where(const std::string& what);
  checkpoint::ShardedStateDict collect();
  checkpoint::SaveInfo save_info(int64_t times_set) const;
  void note_saved(const checkpoint::SaveInfo& info, int64_t times_set);
  void save();

  TrainerCore& core_;
  RunState& state_;
  const CheckpointOptions& options_;
  std::unique_ptr<checkpoint::Checkpointer> folder_;
  std::unique_ptr<checkpoint::MemorySnapshot> memory_;
  Last last_;
  int64_t monitor_saved_;  ///< how often the monitor had been set
};

}  // namespace cohort::train::detail
