/// TrainerCore: what fitting, evaluation and checkpoints of a Trainer share.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/train/trainer/launch_place.h"
#include "cohort/train/trainer/precision.h"
#include "cohort/train/trainer/run_progress.h"
#include "cohort/train/trainer/trainer.h"

namespace cohort::train::detail {

/// Where a run is; all ranks alike.
struct RunCounters {
  int64_t epoch = 0;    ///< that goes on, or comes next
  int64_t step = 0;     ///< of the optimizer
  int64_t batch = 0;    ///< of this epoch that each rank has done
  int64_t samples = 0;  ///< of all ranks
};

class TrainerCore {
 public:
  TrainerCore(Trainer& trainer, TrainerOptions options);
  ~TrainerCore();
  TrainerCore(const TrainerCore&) = delete;
  TrainerCore& operator=(const TrainerCore&) = delete;

  /// Puts the strategy around the task's model, unless it is there.
  void attach(ErasedTask& task);
  /// Throws c10::ValueError where a pipeline is meant and there is none, or a task has one that cannot be run as the options say.
  void check_pipeline(const ErasedTask& task) const;
  FeedSettings feed_settings() const;
  void each_callback(const std::function<void(Callback&)>& call) const;

  /// Sums over the ranks, number by number. Collective.
  std::vector<double> sums(std::vector<double> numbers) const;
  std::vector<int64_t> largest(std::vector<int64_t> numbers) const;

  void set_metrics(const Metrics& values);
  std::optional<double> metric(std::string_view name) const;
  /// How often the number has been set; 0: never.
  int64_t times_set(const std::string& name) const;
  /// Says so where a run that goes on has reached its end before.
  void tell_if_all_is_done();
  bool is_logged() const;
  /// On rank 0 what the options ask for, from the step after this one on.
  void open_logger();
  void log(const Metrics& values) const;

  Trainer& trainer;
  TrainerOptions options;
  LaunchPlace place;
  std::optional<DeviceMesh> mesh;  ///< of TrainerOptions::dims
  Precision precision;
  std::unique_ptr<Strategy> strategy;
  torch::optim::Optimizer* optimizer = nullptr;
  RunCounters counters;
  int64_t accumulation = 1;
  Metrics metrics;
  std::string stop_reason;
  StepClock clock;
  RunProgress progress;
  std::shared_ptr<Logger> logger;  ///< null: nothing is logged

 private:
  std::map<std::string, int64_t, std::less<>> times_set_;
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
