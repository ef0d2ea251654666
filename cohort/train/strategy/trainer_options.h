/// Options of a Trainer. Names follow Lightning's Trainer if it has the option.
#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/parallel/ddp/settings/options.h"
#include "cohort/parallel/dims/parallel_dims.h"
#include "cohort/parallel/fsdp/settings/options.h"
#include "cohort/train/logging/logger.h"

namespace cohort::train {

class Callback;

/// A part of an epoch: a fraction of its batches (a floating-point number; 1.0 means all), or a number of batches (a whole
/// number).
class BatchLimit {
 public:
  // Implicit on purpose: {.limit_train_batches = 0.1}, {.limit_train_batches = 10}.
  BatchLimit(double fraction) : fraction_(fraction) {}
  BatchLimit(int64_t batches) : batches_(batches) {}
  BatchLimit(int batches) : batches_(batches) {}

  bool is_fraction() const { return fraction_.has_value(); }
  bool is_whole() const { return fraction_ == 1.0; }
  bool is_nothing() const { return is_fraction() ? fraction_ == 0.0 : batches_ == 0; }
  double fraction() const { return fraction_.value_or(0.0); }
  int64_t batches() const { return batches_; }

 private:
  std::optional<double> fraction_;
  int64_t batches_ = 0;
};

/// How to put a strategy around a model, and on which devices.
struct StrategyOptions {
  /// "single": one process. "ddp", "fsdp": one process per device, started by a launcher or spawn(). "data_parallel": one process
  /// that uses several devices. "auto": "ddp" if a launcher started this process or there is a process group, else "single".
  std::string kind = "auto";
  /// Processes on each host; with data_parallel the number of devices to use. If absent, all there are.
  std::optional<int> devices = {};
  /// Hosts of the job. If absent, all there are.
  std::optional<int> num_nodes = {};
  /// The device of the model, except with data_parallel. Default: current_device().
  std::optional<c10::Device> device = {};
  /// The backend for init_process_group, unless a group exists.
  std::string backend = {};
  ddp::Options ddp = {};
  fsdp::Options fsdp = {};
  /// With data_parallel: replaces the first `devices` devices. A device may occur several times. The first one holds batches and
  /// the model.
  std::vector<c10::Device> data_parallel_devices = {};
};

/// The values to check for NaN and infinity.
enum class FiniteCheck {
  kNone,
  kLoss,  ///< each step's loss; on accelerators only when it is logged, as the host would wait for the device
  /// The loss and, before each step of the optimizer, all gradients. With "16-mixed" only the loss: infinite gradients tell it to
  /// lower its scale and skip the step.
  kGradients
};

/// Whether a run resumes from the newest checkpoint of its folder.
enum class Resume {
  kIfThere,
  /// The folder must then have no checkpoints (else c10::ValueError), as old and new ones would be mixed. Checkpoints that the
  /// same job made before `cohort run` restarted it do not count: the run resumes from them.
  kNever,
  kMust,  ///< throws c10::ValueError without a checkpoint
};

/// How a run adapts when it resumes with another number of ranks.
enum class OnNewWorldSize {
  kKeepGlobalBatch,    ///< samples per step: gradient_accumulation_steps changes, or else the batch size
  kScaleLearningRate,  ///< multiplies learning rates, and those in schedulers, by new ranks / old ranks
  kKeepAll,            ///< changes no option: steps have another number of samples
  kRefuse,             ///< throws c10::ValueError
};

/// The checkpoints of a run (checkpointer.h), in a folder that all ranks see.
struct CheckpointOptions {
  /// If empty, no checkpoints are written.
  std::string folder = {};
  /// When to save: every so many steps, at the end of every so many epochs, and after so much time, unless absent. The end
  /// of a run is always saved.
  std::optional<int64_t> every_steps = {};
  std::optional<int64_t> every_epochs = 1;
  std::optional<std::chrono::milliseconds> every = {};
  /// Every so many steps, keeps the state in the launcher's memory, too (recovery/memory_snapshot.h), with or without a folder.
  /// Ranks that `cohort run --max-restarts` starts again resume from it. If absent, it keeps none.
  std::optional<int64_t> memory_every_steps = {};
  /// Signals that ask for a last checkpoint and an orderly end. Without `folder`, they end the process as in any program, as
  /// nothing can be saved.
  std::vector<int> stop_signals = {SIGTERM};

  /// How many of the newest checkpoints are kept; if absent, all. `keep_best` more are kept: the best by `monitor`, such as
  /// "validation/loss".
  std::optional<int64_t> keep_last = 1;
  int64_t keep_best = 0;
  std::string monitor = "validation/loss";
  bool highest_is_best = false;
  /// Whether training continues while files are written.
  bool asynchronous = true;

  Resume resume = Resume::kIfThere;
  OnNewWorldSize on_new_world_size = OnNewWorldSize::kKeepGlobalBatch;
  /// Settings that must be equal when a run resumes, such as the sizes of the model and of the data. Checkpoints keep them;
  /// another value throws c10::ValueError.
  Hyperparameters settings = {};
};

struct TrainerOptions {
  StrategyOptions strategy = {};
  /// With "fsdp": the number of replicas of the model, each sharded over ranks of its own (HSDP). The Trainer sets
  /// strategy.fsdp.mesh. If absent, one replica, or what strategy.fsdp.mesh says.
  std::optional<int> fsdp_replicas = {};
  /// With "fsdp": the number of ranks on each axis; one may be -1, for all ranks that are left. If all are 1, dims have no
  /// effect. The Trainer makes the mesh, Trainer::mesh(), and shards parameters on its data-parallel axes. Ranks that differ only
  /// in "tp", "cp" or "pp" read the same samples, and ranks that differ only in "tp" draw the same random numbers. The program
  /// parallelizes the model on axis "tp" before it makes the optimizer; the task's `step` shards sequences on "cp"
  /// (ContextParallel). With "pp" the task has a pipeline (task.h), whose stages the program has made.
  parallel::ParallelDims dims = {};
  /// "32"; "bf16-mixed", "16-mixed": parameters in float32, computation in autocast; "bf16": parameters and inputs in bfloat16.
  std::string precision = "32";

  /// Limits of a run; fit needs one of them. Steps are those of the optimizer.
  std::optional<int64_t> max_epochs = {};
  std::optional<int64_t> max_steps = {};
  std::optional<std::chrono::milliseconds> max_time = {};

  /// Batches per optimizer step. Their gradients are summed, each divided by this number.
  int64_t gradient_accumulation_steps = 1;
  /// Clips the norm of the gradients over all ranks' shards, or each of their elements, to this value.
  std::optional<double> gradient_clip_norm = {};
  std::optional<double> gradient_clip_value = {};
  FiniteCheck finite_check = FiniteCheck::kLoss;

  /// A number of batches is an upper limit: an iterable dataset that ends earlier ends the epoch.
  BatchLimit limit_train_batches = 1.0;
  BatchLimit limit_val_batches = 1.0;  ///< 0 means no validation
  BatchLimit limit_test_batches = 1.0;
  BatchLimit limit_predict_batches = 1.0;
  /// If not 0, trains and validates on this part of the data, always the same and in order. Ignores the training loader's own
  /// sampler, with a warning, but keeps a batch sampler.
  BatchLimit overfit_batches = 0;
  /// If not 0, runs one epoch with this many batches of training and validation, without checkpoints, to see whether the program
  /// works.
  int64_t fast_dev_run = 0;
  /// How often to validate: within an epoch after each such part of it (1.0: at its end), and in every so many epochs. fit throws
  /// c10::ValueError if this is more batches than an epoch has. fast_dev_run validates at the end of its epoch.
  BatchLimit val_check_interval = 1.0;
  int64_t check_val_every_n_epoch = 1;

  /// Shards data among ranks if a loader has no sampler of its own: training data in an order that changes each epoch if the
  /// loader shuffles, other data such that each sample comes once.
  bool use_distributed_sampler = true;
  /// Seeds LibTorch's generators (seed_everything), and the order of training data. Ranks draw different numbers, except ranks
  /// that differ only in "tp" (dims).
  std::optional<int64_t> seed = {};
  /// Uses only deterministic algorithms; an operation without one throws c10::Error.
  bool deterministic = false;

  CheckpointOptions checkpoint = {};
  std::vector<std::shared_ptr<Callback>> callbacks = {};

  /// Folder for logs that rank 0 writes: losses every log_every_n_steps steps, results of evaluations and callbacks, and system
  /// metrics (logging/system_metrics.h) after each epoch. It gets TensorBoard files, CSV and JSON lines, and with `plot` also
  /// curves as pictures (extras/train/logging/run_loggers.h); a program without cohort::extras writes only JSON lines. If empty,
  /// there are no logs. A resumed run continues them.
  std::string log_folder = {};
  bool plot = false;
  /// Makes a further logger on rank 0 when fit begins. Its argument is the first step that fit makes.
  std::function<std::shared_ptr<Logger>(int64_t first_step)> make_logger = {};
  /// The options that the run was started with, for the logs (RunConfig::values()).
  Hyperparameters hyperparameters = {};
  int64_t log_every_n_steps = 50;
  /// Shows on rank 0 a line for each epoch while it runs (logging/epoch_line.h), and at the end a table of all epochs.
  bool progress = true;

  [[deprecated("use strategy")]] const StrategyOptions& strategy_options() const { return strategy; }
};

}  // namespace cohort::train
