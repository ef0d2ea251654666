/// What a Trainer can be told. Names follow Lightning's Trainer where it has one.
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

/// A part of an epoch: a fraction of its batches (a floating-point number, 1.0: all), or so many batches (a whole number).
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

/// How a strategy is put around a model, and where it computes.
struct StrategyOptions {
  /// "single": one process. "ddp", "fsdp": a process per device, which a launcher or spawn() starts. "data_parallel": one process
  /// that uses several devices. "auto": ddp where a launcher started this process or there is a process group, else single.
  std::string kind = "auto";
  /// Processes on each host; with data_parallel the devices to use. 0: what there is.
  int devices = 0;
  /// Hosts of the job. 0: what there is.
  int num_nodes = 0;
  /// Where to compute, but with data_parallel. Default: current_device().
  std::optional<c10::Device> device = {};
  /// For init_process_group, where there is no group yet.
  std::string backend = {};
  ddp::Options ddp = {};
  fsdp::Options fsdp = {};
  /// With data_parallel, instead of the first `devices` ones; a device may be there several times. The first one is where batches
  /// and the model are.
  std::vector<c10::Device> data_parallel_devices = {};
};

/// What is looked at for NaN and infinity.
enum class FiniteCheck {
  kNone,
  kLoss,  ///< each step's loss; on accelerators only when it is logged, as the host would wait for the device
  /// The loss and, before each step of the optimizer, all gradients; not these with "16-mixed", which finds its scale by
  /// gradients that are infinite, and leaves such steps out.
  kGradients
};

/// When a run goes on with the newest checkpoint of its folder.
enum class Resume {
  kIfThere,
  /// The folder must have no checkpoints then (c10::ValueError), as old and new ones would be mixed. Those that the same job made
  /// before `cohort run` has restarted it do not count: it goes on from them.
  kNever,
  kMust,  ///< c10::ValueError if there is none
};

/// What is kept when a run goes on with another number of ranks.
enum class OnNewWorldSize {
  kKeepGlobalBatch,  ///< gradient_accumulation_steps changes, or else the batch size: samples per step stay as they were
  kScaleLearningRate,  ///< learning rates, and those that schedulers go by, are multiplied by new ranks / old ranks
  kKeepAll,            ///< nothing changes: steps have another number of samples
  kRefuse,             ///< c10::ValueError
};

/// The checkpoints of a run (checkpointer.h), in a folder that all ranks see.
struct CheckpointOptions {
  /// Empty: none are written.
  std::string folder = {};
  /// When to save: at multiples of so many steps, at the end of every so many epochs, when so much time has passed; 0: never. The
  /// end of a run is always saved.
  int64_t every_steps = 0;
  int64_t every_epochs = 1;
  std::chrono::milliseconds every{0};
  /// Every so many steps the state is kept in the launcher's memory, too (recovery/memory_snapshot.h), whether there is a folder
  /// or not: ranks that `cohort run --max-restarts` starts again go on from there. 0: never.
  int64_t memory_every = 0;
  /// Signals that ask for a last checkpoint and an early, orderly end. Without `folder`, where nothing can be saved, they end the
  /// process as in any program.
  std::vector<int> stop_signals = {SIGTERM};

  /// The newest ones that stay; 0: all. Besides, the best by `monitor`, such as "validation/loss".
  int64_t keep_last = 1;
  int64_t keep_best = 0;
  std::string monitor = "validation/loss";
  bool highest_is_best = false;
  /// Training goes on while files are written.
  bool asynchronous = true;

  Resume resume = Resume::kIfThere;
  OnNewWorldSize on_new_world_size = OnNewWorldSize::kKeepGlobalBatch;
  /// What must be the same for a run to go on, such as the sizes of the model and of the data: checkpoints have it, and one with
  /// another value is c10::ValueError.
  Hyperparameters settings = {};
};

struct TrainerOptions {
  StrategyOptions strategy = {};
  /// With "fsdp": so many copies of the model, each in parts on the ranks of its own (HSDP); the Trainer sets
  /// strategy.fsdp.mesh. 0: one copy, or what strategy.fsdp.mesh says.
  int fsdp_replicas = 0;
  /// With "fsdp": how many ranks do what; one may be -1, the rest. The Trainer makes the mesh, Trainer::mesh(), shares parameters
  /// out on its data-parallel axes, and has ranks that differ in "tp", "cp" or "pp" alone read the same samples, and in "tp"
  /// alone draw the same numbers; what they share of the model is put on axis "tp" by the program, before it makes the optimizer,
  /// and its task's `step` shares sequences out on "cp" (ContextParallel). With "pp" the task has a pipeline (task.h), whose
  /// stages the program has shared out. All 1: not said.
  ParallelDims dims = {};
  /// "32"; "bf16-mixed", "16-mixed": parameters in float32, computation in autocast; "bf16": parameters and inputs in bfloat16.
  std::string precision = "32";

  /// Bounds of a run; fit needs one of them. 0: no bound. Steps are those of the optimizer.
  int64_t max_epochs = 0;
  int64_t max_steps = 0;
  std::chrono::milliseconds max_time{0};

  /// Batches whose gradients are summed up for a step, each divided by this number.
  int64_t gradient_accumulation_steps = 1;
  /// The gradients' norm, of all ranks' shards, or each of their elements, is brought down to this.
  std::optional<double> gradient_clip_norm = {};
  std::optional<double> gradient_clip_value = {};
  FiniteCheck finite_check = FiniteCheck::kLoss;

  /// A number is the most: an iterable that ends before ends the epoch.
  BatchLimit limit_train_batches = 1.0;
  BatchLimit limit_val_batches = 1.0;  ///< 0: no validation
  BatchLimit limit_test_batches = 1.0;
  BatchLimit limit_predict_batches = 1.0;
  /// Not 0: trains, and validates, on so much of the data, always the same and in order: the training loader's own sampler is
  /// left out, and a warning says so. A batch sampler stays.
  BatchLimit overfit_batches = 0;
  /// Not 0: so many batches of training and validation, one epoch, without checkpoints: does the program work at all?
  int64_t fast_dev_run = 0;
  /// How often validation is made: within an epoch after such a part of it (1.0: at its end), and every so many epochs. fit
  /// throws c10::ValueError for more batches than an epoch has. With fast_dev_run at the end of its epoch.
  BatchLimit val_check_interval = 1.0;
  int64_t check_val_every_n_epoch = 1;

  /// Shares data out among ranks where a loader has no sampler of its own: training in an order that changes each epoch if the
  /// loader shuffles, everything else so that each sample comes once.
  bool use_distributed_sampler = true;
  /// Seeds LibTorch's generators (seed_everything), and the order of training data. Ranks draw different numbers, but not those
  /// of one "tp" line (dims).
  std::optional<int64_t> seed = {};
  /// Only algorithms that give the same numbers each time; c10::Error where there is none.
  bool deterministic = false;

  CheckpointOptions checkpoint = {};
  std::vector<std::shared_ptr<Callback>> callbacks = {};

  /// Logs that rank 0 writes: losses each log_every_n_steps steps, what evaluations and callbacks give, and what the system does
  /// (logging/system_metrics.h) after each epoch. In this folder for TensorBoard, as CSV and as JSON lines, with `plot` curves as
  /// pictures, too (extras/train/logging/run_loggers.h); a program without cohort::extras has the JSON lines alone. Empty: none.
  /// A run that goes on goes on there as well.
  std::string log_folder = {};
  bool plot = false;
  /// Besides, a logger of one's own: made on rank 0 when fit begins, with the first step that it makes.
  std::function<std::shared_ptr<Logger>(int64_t first_step)> make_logger = {};
  /// What the run was started with, for the logs (RunConfig::values()).
  Hyperparameters hyperparameters = {};
  int64_t log_every_n_steps = 50;
  /// On rank 0 a line for each epoch that shows how it goes (logging/epoch_line.h), and at the end a table of all.
  bool progress = true;

  [[deprecated("use strategy")]] const StrategyOptions& strategy_options() const { return strategy; }
};

}  // namespace cohort::train
