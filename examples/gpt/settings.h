// The options of train_gpt, their defaults, and the TrainerOptions that follow from them.
#pragma once

#ifdef GPT_WITH_PLOTS  // with Cohort's extras
#include <cohort/extras/train/logging/plot.h>
#endif

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#include <cohort/parallel/dims/parallel_dims.h>
#include <cohort/parallel/pipeline/pipeline_schedule.h>
#include <cohort/train/config/run_config.h>
#include <cohort/train/logging/json_lines_logger.h>
#include <cohort/train/strategy/trainer_options.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

namespace gpt {

struct Settings {
  std::string data = COHORT_DEFAULT_TEXT;
  std::string checkpoint = "train_gpt";
  std::string log, plot;
  bool resume = false, auto_resume = false;
  bool zero = false, fsdp = false;
  int hsdp = 0;
  cohort::parallel::ParallelDims dims;
  std::string pp_schedule = "1F1B";
  int pp_stages_per_rank = 0, pp_microbatches = 4;
  int64_t depth = 3, width = 144, heads = 3, context = 128;
  double dropout = 0.0;
  bool tie_weights = false;
  int64_t activation_checkpointing = 0;
  int64_t steps = 2400, batch_size = 8, gradient_accumulation_steps = 1;
  double lr = 4e-3, min_lr = 2e-4, weight_decay = 0.1, clip = 1.0;
  int64_t warmup = 100;
  double held_out = 0.05;
  int64_t eval_every = 400, eval_windows = 2048;
  int64_t memory_snapshots = 0;
  int64_t save_every = 500, stop_at = 0, log_every = 10;
  int64_t seed = 1;
  std::string prompt = "#pragma once\n\n#include <";
  int64_t sample_bytes = 400;
  double temperature = 0.8;
};

inline void add_run_options(cohort::train::RunConfig& config, Settings& s) {
  config.add("data", s.data, "text file, or folder of text files");
  config.add("checkpoint", s.checkpoint, "folder of the checkpoints");
  config.add("resume", s.resume, "resume from the newest checkpoint");
  config.add("auto-resume", s.auto_resume, "resume from the newest checkpoint, or begin a new run without one");
  config.add("save-every", s.save_every, "steps between checkpoints; 0 saves only at the end", {.min = 0});
  config.add("memory-snapshots", s.memory_snapshots,
             "steps between memory snapshots, for restarts by cohort run --max-restarts; 0 turns them off", {.min = 0});
  config.add("stop-at", s.stop_at, "save and stop at this step (continue with --resume); 0 stops only at the end",
             {.min = 0});
  config.add("log", s.log, "file for the losses, as JSON lines; if empty, no file");
  config.add("plot", s.plot,
             "picture of the losses (.svg, .png), including earlier ones in --log; if empty, no picture");
  config.add("log-every", s.log_every, "steps between losses", {.min = 1});
  config.add("zero", s.zero, "shard the optimizer's state over the ranks");
  config.add("fsdp", s.fsdp, "shard parameters, gradients and optimizer state over the ranks");
  config.add("hsdp", s.hsdp, "number of replicas, each sharded over its ranks as with --fsdp; 0 turns this off",
             {.min = 0});
  config.add("tp", s.dims.tp, "number of ranks that compute each layer together (tensor parallelism)", {.min = 1});
  config.add("cp", s.dims.cp, "number of ranks that shard the positions of each text (context parallelism)",
             {.min = 1});
  config.add("pp", s.dims.pp, "number of ranks with stages of the model (pipeline parallelism)", {.min = 1});
  config.add("pp-schedule", s.pp_schedule,
             "schedule of the pipeline: 1F1B, GPipe, Interleaved1F1B, LoopedBFS, ZBVZeroBubble, ...");
  config.add("pp-stages-per-rank", s.pp_stages_per_rank,
             "stages per rank; 0 takes what --pp-schedule needs, one or two", {.min = 0});
  config.add("pp-microbatches", s.pp_microbatches, "number of microbatches of a batch", {.min = 1});
  config.add("dp-shard", s.dims.dp_shard,
             "number of shards of parameters, gradients and optimizer state; -1 takes all ranks that are left",
             {.min = -1});
  config.add("dp-replicate", s.dims.dp_replicate, "number of replicas of the model; -1 takes all ranks that are left",
             {.min = -1});
}

inline void add_model_options(cohort::train::RunConfig& config, Settings& s) {
  config.section("Model");
  config.add("depth", s.depth, "number of blocks", {.min = 1});
  config.add("width", s.width, "size of the embedding", {.min = 1});
  config.add("heads", s.heads, "attention heads; must divide the width", {.min = 1});
  config.add("context", s.context, "bytes that the model sees", {.min = 1});
  config.add("tie-weights", s.tie_weights, "use the embedding as the head's weight");
  config.add("dropout", s.dropout, "dropout probability", {.min = 0, .below = 1});
  config.add("activation-checkpointing", s.activation_checkpointing,
             "recompute every N-th block in backward, to save memory; 0 turns this off", {.min = 0});
}

inline void add_training_options(cohort::train::RunConfig& config, Settings& s) {
  config.section("Training");
  config.add("steps", s.steps, "optimizer steps of the whole run", {.min = 1});
  config.add("batch-size", s.batch_size, "windows per rank and forward pass", {.min = 1});
  config.add("gradient-accumulation-steps", s.gradient_accumulation_steps, "forward passes per step", {.min = 1});
  config.add("lr", s.lr, "highest learning rate", {.above = 0});
  config.add("min-lr", s.min_lr, "learning rate at the end", {.min = 0});
  config.add("warmup", s.warmup, "number of steps in which the learning rate rises", {.min = 1});
  config.add("weight-decay", s.weight_decay, "weight decay of the matrices", {.min = 0});
  config.add("clip", s.clip, "largest gradient norm; 0 means no limit", {.min = 0});
  config.add("seed", s.seed, "seed of the weights, the order of the text, and the sample");
  config.section("Tests");
  config.add("held-out", s.held_out, "fraction of the files to test on");
  config.add("eval-every", s.eval_every, "steps between tests; 0 tests only at the end", {.min = 0});
  config.add("eval-windows", s.eval_windows, "windows of the last test; earlier tests have an eighth", {.min = 1});
  config.add("prompt", s.prompt, "the sample's first bytes");
  config.add("sample-bytes", s.sample_bytes, "length of the sample", {.min = 0});
  config.add("temperature", s.temperature, "temperature of the sample; 0 always takes the most likely byte",
             {.min = 0});
}

inline void add_options(cohort::train::RunConfig& config, Settings& settings) {
  add_run_options(config, settings);
  add_model_options(config, settings);
  add_training_options(config, settings);
}

// Returns the dims, including those of --fsdp and --hsdp. If all are 1, each rank has the full model, and reads its own data.
inline cohort::parallel::ParallelDims parallel_dims(const Settings& s) {
  auto dims = s.dims;
  if (s.fsdp || s.hsdp > 0) dims.dp_shard = -1;
  if (s.hsdp > 0) dims.dp_replicate = s.hsdp;
  const bool says_data = dims.dp_shard != 1 || dims.dp_replicate != 1;
  if (dims.tp * dims.cp * dims.pp > 1 && !says_data) dims.dp_replicate = -1;
  return dims;
}

inline cohort::train::TrainerOptions trainer_options(const Settings& s, int64_t num_windows) {
  namespace train = cohort::train;
  const auto dims = parallel_dims(s);
  train::TrainerOptions options{.strategy = {.kind = dims == cohort::parallel::ParallelDims() ? "ddp" : "fsdp"},
                                .dims = dims};
  options.max_steps = s.stop_at > 0 ? std::min(s.stop_at, s.steps) : s.steps;
  options.gradient_accumulation_steps = s.gradient_accumulation_steps;
  if (s.clip > 0.0) options.gradient_clip_norm = s.clip;
  if (s.eval_every == 0) options.limit_val_batches = 0;
  options.val_check_interval = s.eval_every * s.gradient_accumulation_steps;
  options.seed = s.seed;
  options.checkpoint = {
      .folder = s.checkpoint, .every_epochs = std::nullopt, .on_new_world_size = train::OnNewWorldSize::kKeepAll};
  if (s.save_every > 0) options.checkpoint.every_steps = s.save_every;
  if (s.memory_snapshots > 0) options.checkpoint.memory_every_steps = s.memory_snapshots;
  options.checkpoint.resume = s.auto_resume ? train::Resume::kIfThere : train::Resume::kNever;
  if (s.resume) options.checkpoint.resume = train::Resume::kMust;
  options.checkpoint.settings = {{"depth", s.depth},
                                 {"width", s.width},
                                 {"heads", s.heads},
                                 {"context", s.context},
                                 {"tie-weights", s.tie_weights},
                                 {"batch-size", s.batch_size},
                                 {"gradient-accumulation-steps", s.gradient_accumulation_steps},
                                 {"steps", s.steps},
                                 {"warmup", s.warmup},
                                 {"seed", s.seed},
                                 {"training windows", num_windows}};
  options.make_logger = [log = s.log, plot = s.plot](int64_t first_step) {
    auto loggers = std::make_shared<train::LoggerList>();
    if (!log.empty()) loggers->add(std::make_shared<train::JsonLinesLogger>(log, train::LoggerOptions{first_step}));
#ifdef GPT_WITH_PLOTS
    if (!plot.empty())
      loggers->add(std::make_shared<train::PlotLogger>(plot, train::PlotLoggerOptions{log, first_step}));
#else
    TORCH_CHECK_VALUE(plot.empty(), "--plot needs Cohort's extras, but this program was built without them");
#endif
    return loggers->empty() ? nullptr : loggers;
  };
  options.log_every_n_steps = s.log_every;
  return options;
}

// Ranks that run the model together need at least one test window each: checks this before training, not after the last step.
inline void check_tests(const Settings& s, int64_t num_windows, int num_ranks) {
  const auto& dims = s.dims;
  const int64_t num_readers = num_ranks / (dims.tp * dims.cp * dims.pp);
  TORCH_CHECK_VALUE(parallel_dims(s) == cohort::parallel::ParallelDims() || num_windows >= num_readers, "there are ",
                    num_windows, " windows of text to test on, and ", num_readers,
                    " ranks that test together\n  hint: use more --eval-windows, a larger --held-out, or fewer ranks");
}

inline void check_pipeline(const Settings& s) {
  const auto names = cohort::pipeline::pipeline_schedule_names();
  TORCH_CHECK_VALUE(std::find(names.begin(), names.end(), s.pp_schedule) != names.end(), "--pp-schedule ",
                    s.pp_schedule, " is not one of ", c10::Join(", ", names));
  TORCH_CHECK_VALUE(s.batch_size % s.pp_microbatches == 0, "--batch-size ", s.batch_size, " in --pp-microbatches ",
                    s.pp_microbatches, " leaves ", s.batch_size % s.pp_microbatches,
                    " windows over; choose a --pp-microbatches that divides --batch-size");
  TORCH_CHECK_VALUE(s.memory_snapshots == 0,
                    "--pp and --memory-snapshots do not go together: a rank that is lost may have been the only one "
                    "with its stage; use --save-every to save in files");
}

// Checks for options that exclude each other.
inline void check(const Settings& settings) {
  if (settings.dims.pp > 1) check_pipeline(settings);
  const char* const sharding = settings.hsdp > 0             ? "--hsdp"
                               : settings.fsdp               ? "--fsdp"
                               : settings.dims.tp > 1        ? "--tp"
                               : settings.dims.cp > 1        ? "--cp"
                               : settings.dims.pp > 1        ? "--pp"
                               : settings.dims.dp_shard != 1 ? "--dp-shard"
                                                             : "--dp-replicate";
  TORCH_CHECK_VALUE(!settings.zero || parallel_dims(settings) == cohort::parallel::ParallelDims(), sharding,
                    " and --zero do not go together: ", sharding,
                    " already shards the optimizer's state; leave out --zero");
  TORCH_CHECK_VALUE(settings.dims.cp == 1 || settings.activation_checkpointing == 0,
                    "--cp and --activation-checkpointing do not go together: a block that backward recomputes would "
                    "see only this rank's positions; leave out one of them");
}

}  // namespace gpt
