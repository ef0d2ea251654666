/// FitLoop: one call of Trainer::fit.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "cohort/base/deadline.h"
#include "cohort/checkpoint/checkpointer/checkpointer.h"
#include "cohort/checkpoint/recovery/memory_snapshot.h"
#include "cohort/train/logging/system_metrics.h"
#include "cohort/train/trainer/callback.h"
#include "cohort/train/trainer/finite_check.h"
#include "cohort/train/trainer/run_state.h"
#include "cohort/train/trainer/trainer_core.h"

namespace cohort::train::detail {

class FitLoop {
 public:
  FitLoop(TrainerCore& core, ErasedTask& task, BatchFeed& train, BatchFeed* validation);
  FitResult run();

 private:
  void check_task() const;
  void share_data();
  void overfit();
  void resume();
  std::optional<checkpoint::SavedCheckpoint> saved_checkpoint();
  std::optional<int64_t> load(const std::optional<checkpoint::SavedCheckpoint>& saved);
  void tell_where(const std::string& what);
  void run_epochs();
  void run_epoch();
  std::optional<int64_t> plan_epoch();
  int64_t steps_of(int64_t batches) const;
  void begin_progress();
  void end_progress(bool is_whole, bool has_validated);
  bool take_batch();
  void train_batch();
  void check_finite(const StepOutput& output);
  void step_optimizer();
  void step_schedulers(Schedule::Interval interval);
  void after_batch(const StepReport& report);
  void note_loss(const StepOutput& output);
  void log_step();
  bool validation_is_due(bool is_end_of_epoch) const;
  void validate(bool is_end_of_epoch);
  void finish_epoch();
  bool is_over();
  void agree_on_stop();
  void check_interval() const;
  void check_monitors();
  bool time_is_up();
  void save_if_due();
  void save(bool is_end_of_run);
  checkpoint::ShardedStateDict collect();
  checkpoint::SaveInfo save_info(int64_t times) const;
  void note_saved(const checkpoint::SaveInfo& info, int64_t times);
  CheckedStep checked_step(int64_t batch) const;
  FitResult result() const;

  TrainerCore& core_;
  ErasedTask& task_;
  BatchFeed& train_;
  BatchFeed* validation_;
  const TrainerOptions& options_;
  /// [2] float64, where the model computes: sum of losses and number of this rank's samples in this epoch.
  at::Tensor epoch_loss_;
  RunState state_;
  std::unique_ptr<checkpoint::Checkpointer> checkpoints_;
  std::unique_ptr<checkpoint::MemorySnapshot> memory_;
  const base::Moment time_limit_ = base::deadline_after(options_.max_time);

  SystemMetrics system_;
  // Where this epoch began in this call, evaluations taken off.
  struct {
    std::chrono::steady_clock::time_point at;
    int64_t samples = 0;
    StepTimes times = {};
  } epoch_began_;

  std::optional<int64_t> num_batches_;  ///< of this epoch, at most; nothing: no bound is known
  bool knows_size_ = false;             ///< there are so many
  int64_t window_ = 0;                  ///< batches since the last step
  std::vector<at::Tensor> window_losses_;
  std::chrono::nanoseconds communication_{0};
  int64_t first_samples_ = 0;
  int64_t last_saved_ = -1;
  std::optional<double> last_metric_;  ///< of that checkpoint
  bool was_saved_within_epoch_ = false;
  int64_t monitor_saved_ = 0;
  int64_t validated_at_ = -1;  ///< batch of this epoch
  bool has_validated_ = false;
  bool has_checked_monitors_ = false;
  std::vector<int64_t> schedule_seen_;
};

}  // namespace cohort::train::detail
