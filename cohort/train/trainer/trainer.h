/// Trainer: trains a task (task.h) on its data, on one device or many. Options say how.
///
///     cohort::models::ResNet net = cohort::models::resnet18({.num_classes = 10});
///     cohort::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
///     cohort::train::Task task{.model = net, .loss = cross_entropy, .optimizer = &optimizer};
///
///     cohort::train::Trainer trainer({.max_epochs = 5, .checkpoint = {.folder = "runs/a"}});
///     trainer.fit(task, train_loader, validation_loader);
///     const cohort::train::Metrics result = trainer.test(task, test_loader);
///
/// The same program runs alone, under `cohort run` and under SLURM. The Trainer joins the job, puts the strategy around the
/// model, shards the data among ranks, accumulates gradients, clips them, steps, evaluates and saves. It resumes an interrupted
/// run with the same bits as an uninterrupted one. docs/guide/trainer.md does the same by hand with the same parts.
///
/// Loaders are data::DataLoader. Collective: every rank makes the same calls. Thread-safety: none.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/export.h"
#include "cohort/train/progress.h"
#include "cohort/train/run/step_clock.h"
#include "cohort/train/strategy/batch_feed.h"
#include "cohort/train/strategy/strategy.h"
#include "cohort/train/strategy/task.h"
#include "cohort/train/strategy/trainer_options.h"
#include "cohort/train/trainer/tuner.h"

namespace cohort::train {

namespace detail {
class TrainerCore;
}

struct FitResult {
  int64_t epochs = 0;  ///< completed, including those before a resume
  int64_t steps = 0;   ///< of the optimizer, including those before a resume
  /// Why the run ended: "max_epochs", "max_steps", "max_time", "signal", or the argument of stop().
  std::string reason = {};
  /// The newest values: "train/loss", "validation/loss", "validation/accuracy", ...
  Metrics metrics = {};
  /// The times of this rank in this call.
  StepTimes times = {};
  double samples_per_second = 0.0;  ///< of all ranks together, while training
};

class COHORT_API Trainer {
 public:
  /// Joins the default group, if the strategy needs a group and none exists; this group ends with the process. Throws
  /// c10::ValueError if options contradict each other or the launcher.
  explicit Trainer(TrainerOptions options = {});
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// Trains. `validation` is a loader of the same kind of batches. The task must have an optimizer. Throws what the task, the
  /// data and callbacks throw, and c10::Error if a loss is not finite (finite_check). Throws c10::ValueError if ranks have
  /// different numbers of batches, and at the end of the first epoch with a validation if the monitor of the best checkpoints or
  /// of a scheduler names no logged number. Puts a model in evaluation mode into training mode. If the model is in training mode,
  /// its parts in evaluation mode stay in it.
  template <class T, class Train>
  FitResult fit(T&& task, const Train& train) {
    auto erased = detail::erase<typename Train::Batch>(task);
    LoaderFeed<Train> train_feed(train);
    return run_fit(erased, train_feed, nullptr);
  }
  template <class T, class Train, class Validation>
  FitResult fit(T&& task, const Train& train, const Validation& validation) {
    static_assert(std::is_same_v<typename Train::Batch, typename Validation::Batch>,
                  "the validation loader must give batches of the same type as the training loader");
    auto erased = detail::erase<typename Train::Batch>(task);
    LoaderFeed<Train> train_feed(train);
    LoaderFeed<Validation> validation_feed(validation);
    return run_fit(erased, train_feed, &validation_feed);
  }

  /// Returns the mean loss over all samples of all ranks, and the task's metrics: {"validation/loss", ...}.
  template <class T, class Loader>
  Metrics validate(T&& task, const Loader& loader) {
    auto erased = detail::erase<typename Loader::Batch>(task);
    LoaderFeed<Loader> feed(loader);
    return run_evaluation(erased, feed, "validation");
  }
  /// Like validate(), but returns {"test/loss", ...}.
  template <class T, class Loader>
  Metrics test(T&& task, const Loader& loader) {
    auto erased = detail::erase<typename Loader::Batch>(task);
    LoaderFeed<Loader> feed(loader);
    return run_evaluation(erased, feed, "test");
  }
  /// Returns the outputs of this rank's batches, without autograd.
  template <class T, class Loader>
  std::vector<at::Tensor> predict(T&& task, const Loader& loader) {
    auto erased = detail::erase<typename Loader::Batch>(task);
    LoaderFeed<Loader> feed(loader);
    return run_prediction(erased, feed);
  }

  /// Trains for a few steps with larger and larger batches, until memory or data end. Then restores everything.
  template <class T, class Loader>
  BatchSizeResult find_batch_size(T&& task, const Loader& loader, const BatchSizeOptions& options = {}) {
    auto erased = detail::erase<typename Loader::Batch>(task);
    LoaderFeed<Loader> feed(loader);
    return run_find_batch_size(erased, feed, options);
  }
  /// Trains with a learning rate that rises from step to step, and finds where the loss falls fastest. Then restores everything.
  template <class T, class Loader>
  LearningRateResult find_learning_rate(T&& task, const Loader& loader, const LearningRateOptions& options = {}) {
    auto erased = detail::erase<typename Loader::Batch>(task);
    LoaderFeed<Loader> feed(loader);
    return run_find_learning_rate(erased, feed, options);
  }

  const TrainerOptions& options() const;
  /// The mesh of TrainerOptions::dims. Absent if they were not given.
  const std::optional<DeviceMesh>& mesh() const;
  int rank() const;
  int world_size() const;
  bool is_first_rank() const { return rank() == 0; }
  c10::Device device() const;

  /// The position of training: the epoch, from 0; the optimizer's steps so far; the completed batches of this epoch.
  int64_t epoch() const;
  int64_t step() const;
  int64_t batch() const;
  /// Batches per optimizer step: the option, unless another world size changed it.
  int64_t gradient_accumulation_steps() const;
  [[deprecated("use gradient_accumulation_steps")]] int64_t accumulation() const {
    return gradient_accumulation_steps();
  }
  /// The newest values.
  const Metrics& metrics() const;
  std::optional<double> metric(std::string_view name) const;
  /// The times of the current fit, or of the last one.
  const StepTimes& times() const;

  /// Ends fit() after the next step. Call it on all ranks; if one rank calls it alone in on_validation_end or on_train_epoch_end,
  /// the others stop with it.
  void stop(const std::string& reason);
  /// Prints a line above the progress line on rank 0, also without progress.
  void print(std::string_view text);
  /// Adds values to the logs of this step, and to metrics().
  void log(const Metrics& values);

  /// The strategy and optimizer of the last task. They throw c10::ValueError before there is one.
  Strategy& strategy();
  torch::optim::Optimizer& optimizer();

 private:
  FitResult run_fit(detail::ErasedTask& task, BatchFeed& train, BatchFeed* validation);
  Metrics run_evaluation(detail::ErasedTask& task, BatchFeed& feed, const char* phase);
  std::vector<at::Tensor> run_prediction(detail::ErasedTask& task, BatchFeed& feed);
  BatchSizeResult run_find_batch_size(detail::ErasedTask& task, BatchFeed& feed, const BatchSizeOptions& options);
  LearningRateResult run_find_learning_rate(detail::ErasedTask& task, BatchFeed& feed,
                                            const LearningRateOptions& options);

  friend class detail::TrainerCore;
  std::unique_ptr<detail::TrainerCore> core_;
};

}  // namespace cohort::train
