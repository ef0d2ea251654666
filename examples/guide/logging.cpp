// The pieces of docs/guide/logging.md (tests/tools/guide_test.py compares them), run by two ranks.
#include <cohort/comm/group/process_group.h>
#include <cohort/extras/train/logging/csv_logger.h>
#include <cohort/extras/train/logging/plot.h>
#include <cohort/extras/train/logging/summary_writer.h>
#include <cohort/train/config/run_config.h>
#include <cohort/train/logging/epoch_line.h>
#include <cohort/train/logging/json_lines_logger.h>
#include <cohort/train/logging/model_summary.h>
#include <cohort/train/logging/run_summary.h>
#include <cohort/train/logging/system_metrics.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <unistd.h>

#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>

#include <cmath>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include "guide.h"

namespace guide {
namespace {

namespace train = cohort::train;

struct Settings {
  int64_t epochs = 3;
  double rate = 0.1;
  std::string strategy = "ddp";
  std::string folder = "run";
};

void add_options(train::RunConfig& config, Settings& settings) {
  config.section("Training:");
  config.add("epochs", settings.epochs, "passes over the data", {.min = 1});
  config.add("strategy", settings.strategy, "how ranks share the work", {.choices = {"ddp", "fsdp"}});
  config.add("folder", settings.folder, "where logs go");
  config.section("Optimizer:");
  config.add("optimizer.lr", settings.rate, "learning rate", {.above = 0, .below = 10});
}

std::shared_ptr<train::LoggerList> make_loggers(const std::string& folder, std::optional<int64_t> resumed_at) {
  // The first step of this run; a new run makes all steps.
  const int64_t first_step = resumed_at.value_or(-1) + 1;
  auto loggers = std::make_shared<train::LoggerList>();
  loggers->add(std::make_shared<train::TensorBoardLogger>(folder + "/events",
                                                          train::SummaryWriterOptions{.purge_step = first_step}));
  const train::LoggerOptions options{.purge_step = first_step};
  loggers->add(std::make_shared<train::JsonLinesLogger>(folder + "/metrics.jsonl", options));
  loggers->add(std::make_shared<train::CsvLogger>(folder + "/metrics.csv", options));
  loggers->add(std::make_shared<train::PlotLogger>(
      folder + "/curves.svg",
      train::PlotLoggerOptions{.history = folder + "/metrics.jsonl", .purge_step = first_step}));
  return loggers;
}

// A logger of your own.
class Printer : public train::Logger {
 public:
  void log_metrics(int64_t step, const train::Metrics& values) override {
    std::cout << "step " << step << ": " << values.size() << " values\n";
  }
  void flush() override { std::cout.flush(); }
  void close() override {}
};

void train_with_progress(const Settings& settings, int rank, train::Logger* log) {
  train::EpochLine line(
      {.num_epochs = settings.epochs, .world_size = cohort::get_world_size(), .is_enabled = rank == 0});
  train::RunSummary summary({.world_size = cohort::get_world_size()});
  train::SystemMetrics system;
  const int64_t num_steps = 20, batch_size = 32 * cohort::get_world_size();
  for (int64_t epoch = 0; epoch < settings.epochs; ++epoch) {
    line.begin(epoch, num_steps);
    train::Metrics metrics;
    for (int64_t step = 1; step <= num_steps; ++step) {
      const int64_t total = epoch * num_steps + step;
      metrics = {{"loss", std::exp(-0.05 * static_cast<double>(total))}};
      if (log) log->log_metrics(total, {{"train/loss", metrics[0].second}});
      line.update({.step = step, .num_samples = step * batch_size, .metrics = metrics, .data_wait_share = 0.02});
    }
    if (log) log->log_metrics((epoch + 1) * num_steps, system.sample());
    line.end({.step = num_steps, .num_samples = num_steps * batch_size, .metrics = metrics, .data_wait_share = 0.02});
    summary.add({.epoch = epoch,
                 .seconds = 2.5,
                 .num_samples = num_steps * batch_size,
                 .metrics = metrics,
                 .data_wait_share = 0.02,
                 .communication_share = 0.1,
                 .cpu_share = system.cpu_share()});
  }
  line.print("trained");
  if (rank == 0) std::cout << summary.text();
}

void show_pictures(const std::string& folder) {
  train::SummaryWriter writer(folder + "/pictures");
  const at::Tensor weight = torch::nn::Linear(4, 3)->weight;
  writer.add_histogram("weight", weight, /*global_step=*/1);
  writer.add_image("input", at::rand({3, 8, 8}), 1);
  writer.add_images("inputs", at::rand({4, 1, 8, 8}), 1);
  writer.add_text("note", "the **first** run", 1);
  writer.add_scalar("loss", at::full({}, 0.5), 1);
  writer.add_scalars("losses", {{"train", 0.5}, {"validation", 0.6}}, 1);
  writer.add_hparams({{"lr", 0.1}, {"batch_size", int64_t{32}}, {"amp", true}}, {{"accuracy", 0.9}}, "trial_1");
  writer.add_custom_scalars({{"losses", {{.title = "both", .tags = {"loss", "losses"}}}}});
  writer.close();
}

void draw_curves(const std::string& folder) {
  train::Chart chart{.title = "loss", .x_label = "step", .log_y = true};
  chart.curves = {{"first run", {{1, 2.0}, {2, 0.9}, {3, 0.4}}}, {"second run", {{1, 1.8}, {2, 0.7}, {3, 0.2}}}};
  train::save_plot({chart}, folder + "/comparison.png", {.width = 640, .height = 320});
}

void describe_model() {
  torch::nn::Sequential model(torch::nn::Linear(784, 128), torch::nn::Linear(128, 10));
  std::cout << train::model_summary(*model, {.world_size = cohort::get_world_size(), .strategy = "ddp"});
}

}  // namespace

void run_logging() {
  cohort::init_process_group();
  const int rank = cohort::get_rank();
  const std::string folder = std::filesystem::temp_directory_path() / ("cohort_logging_" + std::to_string(::getpid()));
  Settings settings;
  train::RunConfig config("logging", "Shows what a run can log.");
  add_options(config, settings);
  config.parse({"--optimizer.lr", "0.2", "--folder", folder});
  if (rank == 0) {
    config.save(folder + "/config.toml");
    const auto loggers = make_loggers(folder, std::nullopt);
    loggers->log_hyperparameters(config.values());
    train_with_progress(settings, rank, loggers.get());
    loggers->close();
    const auto resumed = make_loggers(folder, 20);
    resumed->add(std::make_shared<Printer>());
    resumed->log_metrics(21, {{"train/loss", 0.3}});
    resumed->close();
    show_pictures(folder);
    draw_curves(folder);
    describe_model();
    std::filesystem::remove_all(folder);
  } else {
    train_with_progress(settings, rank, nullptr);
  }
  cohort::destroy_process_group();
}

}  // namespace guide
