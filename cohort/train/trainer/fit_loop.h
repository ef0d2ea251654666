/// FitLoop: one call of Trainer::fit: epochs, batches and optimizer steps, until the run ends.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "cohort/base/system/deadline.h"
#include "cohort/train/run/finite_check.h"
#include "cohort/train/run/loss_meter.h"
#include "cohort/train/trainer/callback.h"
#include "cohort/train/trainer/epoch_report.h"
#include "cohort/train/trainer/run_checkpoints.h"
#include "cohort/train/trainer/run_state.h"
#include "cohort/train/trainer/schedule_steps.h"
#include "cohort/train/trainer/trainer_core.h"
#include "cohort/train/trainer/validation_schedule.h"

namespace cohort::train::detail {

class FitLoop {
 public:
  FitLoop(TrainerCore& core, ErasedTask& task, BatchFeed& train, BatchFeed* validation);
  FitResult run();

 private:
  void check_task() const;
  void share_data();
  void overfit();
  void run_epochs();
  void run_epoch();
  std::optional<int64_t> plan_epoch();
  bool take_batch();
  void train_batch();
  void check_finite(const StepOutput& output);
  void step_optimizer();
  void after_batch(const StepReport& report);
  void validate(bool is_end_of_epoch);
  void finish_epoch();
  bool is_over();
  void agree_on_stop();
  void check_monitors();
  bool time_is_up();
  CheckedStep checked_step(int64_t batch) const;
  FitResult result() const;

  TrainerCore& core_;
  RunPosition& position_;
  ErasedTask& task_;
  BatchFeed& train_;
  BatchFeed* validation_;
  const TrainerOptions& options_;
  LossMeter losses_;
  RunState state_;
  RunCheckpoints checkpoints_;
  ValidationSchedule validations_;
  ScheduleSteps schedules_;
  EpochReport report_;
  const base::Moment time_limit_ = base::deadline_after(options_.max_time.value_or(base::kLongestTime));

  std::optional<int64_t> num_batches_;  ///< at most so many in this epoch; absent if no bound is known
  bool knows_size_ = false;             ///< whether num_batches_ is exact
  std::chrono::nanoseconds communication_{0};
  int64_t first_samples_ = 0;
  bool has_checked_monitors_ = false;
};

}  // namespace cohort::train::detail
