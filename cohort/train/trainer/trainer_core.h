/// TrainerCore: what fit, evaluation and checkpoints of a Trainer share.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "cohort/train/run/run_metrics.h"
#include "cohort/train/run/run_position.h"
#include "cohort/train/run/run_progress.h"
#include "cohort/train/strategy/launch_place.h"
#include "cohort/train/strategy/precision.h"
#include "cohort/train/trainer/trainer.h"

namespace cohort::train::detail {

class TrainerCore {
 public:
  TrainerCore(Trainer& trainer, TrainerOptions options);
  ~TrainerCore();
  TrainerCore(const TrainerCore&) = delete;
  TrainerCore& operator=(const TrainerCore&) = delete;

  /// The options, completed with the mesh of `dims` and the limits of fast_dev_run and overfit_batches.
  const TrainerOptions& options() const { return options_; }
  const LaunchPlace& place() const { return place_; }
  /// The mesh of TrainerOptions::dims.
  const std::optional<DeviceMesh>& mesh() const { return mesh_; }
  FeedSettings feed_settings() const;

  /// Puts the strategy around the task's model, unless it is there already.
  void attach(ErasedTask& task);
  /// Both are null before attach(). find_optimizer() is null if the task has no optimizer.
  Strategy* find_strategy() const { return strategy_.get(); }
  torch::optim::Optimizer* find_optimizer() const { return optimizer_; }
  /// These require a strategy and an optimizer.
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

  /// Returns the sums over the ranks, for each number. Collective.
  std::vector<double> sums(std::vector<double> numbers) const;
  std::vector<int64_t> largest(std::vector<int64_t> numbers) const;

  /// Makes these the newest values, and logs them for this step.
  void record(const Metrics& values);
  void log(const Metrics& values) const;
  bool is_logged() const;
  /// Opens the loggers that the options ask for on rank 0, from the step after this one on.
  void open_logger();
  /// Prints a message if a resumed run had already reached its end.
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

/// Runs one forward pass on the feed's batch, under strategy and precision: ErasedTask::step if `is_training`, else evaluate.
StepOutput run_forward(TrainerCore& core, const ErasedTask& task, BatchFeed& feed, bool is_training);

/// Runs a forward pass in training, and backward, too, if there is a pipeline. `is_step`: whether the gradients of this pass, and
/// of those before it, make a step.
StepOutput run_pass(TrainerCore& core, const ErasedTask& task, BatchFeed& feed, bool is_step);

/// Returns a batch's loss as a float64 number without dimensions on the device, so that sums of losses do not wait for it. Throws
/// c10::ValueError if the loss has more or less than one element.
at::Tensor loss_number(const TrainerCore& core, const at::Tensor& loss);

/// Returns the limit as a number of batches. `num_batches`: absent if not known.
std::optional<int64_t> limited(const BatchLimit& limit, std::optional<int64_t> num_batches, const char* name);

/// Returns {"<phase>/loss", ...}. Collective. Leaves the model in its mode.
Metrics evaluate(TrainerCore& core, ErasedTask& task, BatchFeed& feed, const char* phase);
/// Throws now if evaluate() would throw because of its numbers of batches.
void check_batches(TrainerCore& core, const BatchFeed& feed, const char* phase);
std::vector<at::Tensor> predict(TrainerCore& core, ErasedTask& task, BatchFeed& feed);

/// See Trainer's functions of these names.
BatchSizeResult find_batch_size(TrainerCore& core, ErasedTask& task, BatchFeed& feed, const BatchSizeOptions& options);
LearningRateResult find_learning_rate(TrainerCore& core, ErasedTask& task, BatchFeed& feed,
                                      const LearningRateOptions& options);

}  // namespace cohort::train::detail
