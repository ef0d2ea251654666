// What train_gpt can be told: its flags and their defaults.
#pragma once

#include <c10/util/Exception.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdlib>
#include <string>

namespace gpt {

struct Settings {
  std::string data = COHORT_DEFAULT_TEXT;
  std::string checkpoint = "train_gpt.safetensors";
  std::string log;
  bool resume = false, auto_resume = false;
  bool zero = false, fsdp = false;
  int64_t hsdp = 0;
  int64_t depth = 3, width = 144, heads = 3, context = 128;
  double dropout = 0.0;
  int64_t activation_checkpointing = 0;
  int64_t steps = 2400, batch_size = 8, accumulate = 1;
  double learning_rate = 4e-3, min_learning_rate = 2e-4, weight_decay = 0.1, clip = 1.0;
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

inline CLI::Validator positive() {
  return {[](const std::string& text) {
            return std::atof(text.c_str()) > 0 ? std::string() : "must be greater than 0, got " + text;
          },
          "> 0"};
}
inline CLI::Validator not_negative() {
  return {[](const std::string& text) {
            return std::atof(text.c_str()) >= 0 ? std::string() : "must not be negative, got " + text;
          },
          ">= 0"};
}

inline void add_run_flags(CLI::App& app, Settings& settings) {
  app.add_option("--data", settings.data, "text file, or folder of them")->capture_default_str();
  app.add_option("--checkpoint", settings.checkpoint, "file to write")->capture_default_str();
  app.add_flag("--resume", settings.resume, "go on from the checkpoint");
  app.add_flag("--zero", settings.zero, "divide the optimizer's state among the ranks");
  app.add_flag("--fsdp", settings.fsdp, "divide parameters, gradients and optimizer state among the ranks");
  app.add_option("--hsdp", settings.hsdp, "so many replicas, each divided among its ranks as --fsdp does; 0: none")
      ->check(not_negative())
      ->capture_default_str();
  app.add_flag("--auto-resume", settings.auto_resume,
               "go on from the checkpoint if there is one, otherwise start afresh");
  app.add_option("--log", settings.log, "file for the losses, one JSON object per line");
}

inline void add_model_flags(CLI::App& app, Settings& settings) {
  app.add_option("--depth", settings.depth, "number of blocks")->check(positive())->capture_default_str();
  app.add_option("--width", settings.width, "size of the embedding")->check(positive())->capture_default_str();
  app.add_option("--heads", settings.heads, "attention heads; must divide the width")
      ->check(positive())
      ->capture_default_str();
  app.add_option("--context", settings.context, "bytes the model sees")->check(positive())->capture_default_str();
  app.add_option("--dropout", settings.dropout, "in [0, 1)")->check(not_negative())->capture_default_str();
  app.add_option("--activation-checkpointing", settings.activation_checkpointing,
                 "backward computes every N-th block again, to save memory; 0: none")
      ->check(not_negative())
      ->capture_default_str();
}

inline void add_training_flags(CLI::App& app, Settings& settings) {
  app.add_option("--steps", settings.steps, "optimizer steps of the whole run")
      ->check(positive())
      ->capture_default_str();
  app.add_option("--batch-size", settings.batch_size, "windows per rank and pass")
      ->check(positive())
      ->capture_default_str();
  app.add_option("--accumulate", settings.accumulate, "passes per step")->check(positive())->capture_default_str();
  app.add_option("--lr", settings.learning_rate, "highest learning rate")->check(positive())->capture_default_str();
  app.add_option("--min-lr", settings.min_learning_rate, "learning rate at the end")
      ->check(not_negative())
      ->capture_default_str();
  app.add_option("--warmup", settings.warmup, "steps while the learning rate rises")
      ->check(not_negative())
      ->capture_default_str();
  app.add_option("--weight-decay", settings.weight_decay, "of the matrices")
      ->check(not_negative())
      ->capture_default_str();
  app.add_option("--clip", settings.clip, "largest gradient norm; 0: no limit")
      ->check(not_negative())
      ->capture_default_str();
  app.add_option("--held-out", settings.held_out, "fraction of the files to test on")->capture_default_str();
  app.add_option("--eval-every", settings.eval_every, "steps between tests; 0: never")
      ->check(not_negative())
      ->capture_default_str();
  app.add_option("--eval-windows", settings.eval_windows, "windows of the last test")
      ->check(positive())
      ->capture_default_str();
  app.add_option("--save-every", settings.save_every, "steps between checkpoints; 0: only the last")
      ->check(not_negative())
      ->capture_default_str();
  app.add_option("--memory-snapshots", settings.memory_snapshots,
                 "steps between states kept in memory, for restarts by cohort run --max-restarts; 0: none")
      ->check(not_negative())
      ->capture_default_str();
  app.add_option("--stop-at", settings.stop_at, "save and end at this step; --resume goes on")->check(not_negative());
  app.add_option("--log-every", settings.log_every, "steps between losses")->check(positive())->capture_default_str();
  app.add_option("--seed", settings.seed, "for the weights, the order of the text and the sample")
      ->capture_default_str();
  app.add_option("--prompt", settings.prompt, "the sample's first bytes");
  app.add_option("--sample-bytes", settings.sample_bytes, "length of the sample")
      ->check(not_negative())
      ->capture_default_str();
  app.add_option("--temperature", settings.temperature, "of the sample; 0: always take the most likely byte")
      ->check(not_negative())
      ->capture_default_str();
}

inline void add_flags(CLI::App& app, Settings& settings) {
  app.option_defaults()->take_last();  // of a flag given twice, the last counts
  add_run_flags(app, settings);
  add_model_flags(app, settings);
  add_training_flags(app, settings);
}

// Flags that each make sense, but not together.
inline void check_settings(const Settings& settings, int world_size) {
  const char* const sharding = settings.hsdp > 0 ? "--hsdp" : "--fsdp";
  TORCH_CHECK_VALUE(!settings.zero || !(settings.fsdp || settings.hsdp > 0), sharding,
                    " and --zero do not go together: ", sharding,
                    " divides the optimizer's state already; leave out --zero");
  TORCH_CHECK_VALUE(settings.hsdp == 0 || world_size % settings.hsdp == 0, "--hsdp ", settings.hsdp,
                    ": the replicas must have as many ranks each, but this run has ", world_size, " rank(s)");
}

}  // namespace gpt
