/// TrainerCore: what fitting, evaluation and checkpoints of a Trainer share.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "cohort/train/trainer/launch_place.h"
#include "cohort/train/trainer/precision.h"
#include "cohort/train/trainer/run_metrics.h"
#include "cohort/train/trainer/run_position.h"
#include "cohort/train/trainer/run_progress.h"
#include "cohort/train/trainer/trainer.h"

namespace cohort::train::detail {

class TrainerCore {
 public:
  TrainerCore(Trainer& trainer, TrainerOptions options);
  ~TrainerCore();
  TrainerCore(const TrainerCore&) = delete;
  TrainerCore& operator=(const TrainerCore&) = delete;

  /// Completed: with the mesh of `dims`, and the limits of fast_dev_run and overfit_batches.
  const TrainerOptions& options() const { return options_; }
  const LaunchPlace& place() const { return place_; }
  /// Of TrainerOptions::dims.
  const std::optional<DeviceMesh>& mesh() const { return mesh_; }
  FeedSettings feed_settings() const;

  /// Puts the strategy around the task's model, unless it is there.
  void attach(ErasedTask& task);
  /// Both null before attach(); the optimizer also where the task has none.
  Strategy* find_strategy() const { return strategy_.get(); }
  torch::optim::Optimizer* find_optimizer() const { return optimizer_; }
  /// Require them.
  Strategy& strategy() const { return *strategy_; }
  torch::optim::Optimizer& optimizer() const { return *optimizer_; }
  Precision& precision() { return precision_; }

  RunPosition& position() { return position_; }
  const RunPosition& position() const { return position_; }
  RunMetrics& metrics() { return metrics_; }
  StepClock& clock() { return clock_; }
  RunProgress& progress() { return progress_; }

  void each_callback(const std::function<void(Callback&)>& call) const;
  /// Calls `event` of each callback.
  template <class... Parameters, class... Arguments>
  void tell(void (Callback::*event)(Trainer&, Parameters...), const Arguments&... arguments) const {
    each_callback([&](Callback& callback) { (callback.*event)(trainer_, arguments...); });
  }

  /// Sums over the ranks, number by number. Collective.
  std::vector<double> sums(std::vector<double> numbers) const;
  std::vector<int64_t> largest(std::vector<int64_t> numbers) const;

  /// The numbers count from now on, and are logged as those of this step.
  void record(const Metrics& values);
  void log(const Metrics& values) const;
  bool is_logged() const;
  /// On rank 0 what the options ask for, from the step after this one on.
  void open_logger();
  /// Says so where a run that goes on has reached its end before.
  void tell_if_all_is_done();

 private:
  void check_pipeline(const ErasedTask& task) const;

  Trainer& trainer_;
  TrainerOptions options_;
  LaunchPlace place_;
  std::optional<DeviceMesh> mesh_;
  Precision precision_;
  std::unique_ptr<Strategy> strategy_;
  torch::optim::Optimizer* optimizer_ = nullptr;
  RunPosition position_;
  RunMetrics metrics_;
  StepClock clock_;
  RunProgress progress_;
};

/// One forward pass on the feed's batch, under strategy and precision. `is_training`: by ErasedTask::step, else by evaluate.
StepOutput run_forward(TrainerCore& core, const ErasedTask& task, BatchFeed& feed, bool is_training);

/// The same in training; of a pipeline backward, too. `is_step`: the gradients of this pass, and of those before it, make a step.
StepOutput run_pass(TrainerCore& core, const ErasedTask& task, BatchFeed& feed, bool is_step);

/// A batch's loss as a number on the device, so that sums of losses do not wait for it: float64, without a dimension. Throws
/// c10::ValueError for anything but one element.
at::Tensor loss_number(const TrainerCore& core, const at::Tensor& loss);

/// How many of `num_batches` (nothing: not known) are meant.
std::optional<int64_t> limited(const BatchLimit& limit, std::optional<int64_t> num_batches, const char* name);

/// {"<phase>/loss", ...}. Collective. Leaves the model in the mode it was in.
Metrics evaluate(TrainerCore& core, ErasedTask& task, BatchFeed& feed, const char* phase);
/// Refuses now what evaluate() would refuse for its numbers of batches.
void check_batches(TrainerCore& core, const BatchFeed& feed, const char* phase);
std::vector<at::Tensor> predict(TrainerCore& core, ErasedTask& task, BatchFeed& feed);

/// See Trainer's functions of these names.
BatchSizeResult find_batch_size(TrainerCore& core, ErasedTask& task, BatchFeed& feed, const BatchSizeOptions& options);
LearningRateResult find_learning_rate(TrainerCore& core, ErasedTask& task, BatchFeed& feed,
                                      const LearningRateOptions& options);

}  // namespace cohort::train::detail
