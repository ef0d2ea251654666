// What fit does at the ends of epochs, windows and runs on several ranks, which are processes.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "cohort/train/optim/lr_scheduler.h"
#include "cohort/train/optim/swa_lr.h"
#include "tests/checkpoint/temporary_folder.h"
#include "tests/support/rank_processes.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"
#include "tests/train/trainer/number_stream.h"
#include "tests/train/trainer/rank_options.h"
#include "tests/train/trainer/small_task.h"

namespace cohort::train {
namespace {

using cohort::test::run_workers;
using cohort::test::TemporaryFolder;
using test::Loader;
using test::NumberStream;
using test::of_ranks;
using test::small_data;
using test::SmallTask;
using test::Watch;

// Five batches an epoch, of which the last is no step, as nobody knows that it is the last; rank 0 has a sixth.
COHORT_WORKER(trainer_drops_windows) {
  std::vector<std::vector<double>> losses;
  for (const char* strategy : {"ddp", "fsdp"}) {
    SmallTask task(/*drop=*/0.0);
    task.model->norm->options.momentum(0.0);
    auto watch = std::make_shared<Watch>();
    Trainer trainer(of_ranks(
        {.strategy = {.kind = strategy}, .max_epochs = 3, .gradient_accumulation_steps = 2, .callbacks = {watch}}));
    const NumberStream stream(44, get_rank(), 2, /*more=*/2);
    const auto result = trainer.fit(task, data::DataLoader(stream, {.batch_size = 4, .drop_last = true}));
    REQUIRE(result.steps == 6 && result.epochs == 3);
    losses.push_back(watch->losses);
  }
  REQUIRE(losses[0].size() == 15 && losses[1].size() == 15);
  for (size_t i = 0; i < 15; ++i) REQUIRE(std::abs(losses[0][i] - losses[1][i]) < 1e-5);
}

TEST(TrainerRanks, DropGradientsThatAreNoStep) { run_workers("trainer_drops_windows").expect_success(); }

// Each rank's own number.
struct RankNumber {
  void update(const at::Tensor&, const at::Tensor&) {}
  double compute() const { return get_rank() == 0 ? 0.5 : std::nan(""); }
  void reset() {}
};

// Stops on rank 1 alone.
struct StopOne : Callback {
  explicit StopOne(bool in_validation) : in_validation_(in_validation) {}
  void on_validation_end(Trainer& trainer, const Metrics&) override {
    if (in_validation_ && trainer.rank() == 1) trainer.stop("mine");
  }
  void on_train_epoch_end(Trainer& trainer) override {
    if (!in_validation_ && trainer.rank() == 1) trainer.stop("mine");
  }

 private:
  bool in_validation_;
};

COHORT_WORKER(trainer_decides_alike) {
  const Loader loader(small_data(16), {.batch_size = 4});
  SmallTask task;
  task.metrics = {{"own", RankNumber()}};
  Trainer trainer(of_ranks({.strategy = {.kind = "ddp"}, .max_epochs = 1}));
  trainer.fit(task, loader, loader);
  REQUIRE(trainer.metric("validation/own") == 0.5);
  for (const bool in_validation : {true, false}) {
    TrainerOptions options{
        .strategy = {.kind = "ddp"}, .max_epochs = 2, .callbacks = {std::make_shared<StopOne>(in_validation)}};
    if (in_validation) options.val_check_interval = 1;
    SmallTask stopped;
    Trainer stopping(of_ranks(options));
    const auto result = stopping.fit(stopped, loader, loader);
    REQUIRE(result.reason == (get_rank() == 0 ? "stop on rank 1" : "mine"));
    REQUIRE(result.steps == (in_validation ? 1 : 2));
  }
}

TEST(TrainerRanks, DecideAlike) { run_workers("trainer_decides_alike").expect_success(); }

// Has a large buffer that is another one on each rank after each forward pass.
struct NoteImpl : torch::nn::Module {
  NoteImpl() {
    register_module("linear", linear);
    note = register_buffer("note", at::zeros({1 << 15}));
  }
  at::Tensor forward(const at::Tensor& x) {
    if (is_training()) note.fill_(get_rank());
    return linear(x);
  }
  torch::nn::Linear linear{6, 3};
  at::Tensor note;
};
TORCH_MODULE(Note);

struct NoteTask {
  Note model;
  optim::SGD optimizer{model->parameters(), torch::optim::SGDOptions(0.1)};
  at::Tensor loss(const at::Tensor& scores, const at::Tensor& labels) {
    return torch::nn::functional::cross_entropy(scores, labels);
  }
};

// What a rank keeps of a buffer is one part of it, so all must have the same then: after steps 2 and 4.
COHORT_WORKER(trainer_keeps_one_buffer) {
  struct Buffers : Callback {
    explicit Buffers(const at::Tensor& buffer) : note(buffer) {}
    void on_train_batch_start(Trainer&, int64_t) override { seen.push_back(note[0].item<int64_t>()); }
    at::Tensor note;
    std::vector<int64_t> seen;
  };
  NoteTask task;
  auto buffers = std::make_shared<Buffers>(task.model->note);
  Trainer trainer(of_ranks(
      {.strategy = {.kind = "ddp"}, .max_epochs = 1, .checkpoint = {.memory_every_steps = 2}, .callbacks = {buffers}}));
  trainer.fit(task, Loader(small_data(40), {.batch_size = 4}));
  const int64_t own = get_rank();
  REQUIRE(buffers->seen == (std::vector<int64_t>{0, own, 0, own, 0}));
}

TEST(TrainerRanks, KeepOneBufferInMemory) { run_workers("trainer_keeps_one_buffer").expect_success(); }

using MakeScheduler = std::function<std::shared_ptr<optim::LRScheduler>(torch::optim::Optimizer&)>;

MakeScheduler scheduler_called(const std::string& name) {
  using torch::optim::Optimizer;
  if (name == "one_cycle") {
    return [](Optimizer& optimizer) {
      return std::make_shared<optim::OneCycleLR>(optimizer, 0.4, optim::OneCycleOptions{.total_steps = 60});
    };
  }
  if (name == "cyclic") {
    return [](Optimizer& optimizer) {
      return std::make_shared<optim::CyclicLR>(optimizer, 0.01, 0.1, optim::CyclicOptions{.step_size_up = 5});
    };
  }
  if (name == "swa") {
    return [](Optimizer& optimizer) { return std::make_shared<optim::SWALR>(optimizer, 0.2, /*anneal_epochs=*/15); };
  }
  if (name == "step") return [](Optimizer& optimizer) { return std::make_shared<optim::StepLR>(optimizer, 3); };
  return [](Optimizer& optimizer) {
    return std::make_shared<optim::CosineAnnealingLR>(optimizer, /*T_max=*/30, /*eta_min=*/0.01);
  };
}

// The rates after each step. Trains 4 steps on 2 ranks, and then to the end on one.
COHORT_WORKER(trainer_scales_schedules) {
  struct Rates : Callback {
    void on_train_batch_end(Trainer& trainer, const StepReport&) override {
      rates.push_back(trainer.optimizer().param_groups()[0].options().get_lr());
      if (trainer.world_size() == 2 && trainer.step() == 4) trainer.stop("cut");
    }
    std::vector<double> rates;
  };
  const auto make = scheduler_called(cohort::test::worker_arguments()[1]);
  SmallTask task;
  const auto scheduler = make(task.optimizer);
  task.schedulers = {every_step(*scheduler)};
  auto seen = std::make_shared<Rates>();
  TrainerOptions options{.strategy = {.kind = "ddp"}, .max_epochs = 2, .callbacks = {seen}};
  options.checkpoint = {.folder = cohort::test::worker_arguments()[0],
                        .on_new_world_size = OnNewWorldSize::kScaleLearningRate};
  Trainer trainer(of_ranks(options));
  trainer.fit(task, Loader(small_data(48), {.batch_size = 4}));
  const bool is_scaled = get_world_size() == 1;
  SmallTask by_hand;
  const auto same = make(by_hand.optimizer);
  const size_t first = is_scaled ? 4 : 0;
  for (size_t step = 0; step < first + seen->rates.size(); ++step) {
    same->step();
    if (step < first) continue;
    const double expected = same->get_last_lr()[0] * (is_scaled ? 0.5 : 1.0);
    REQUIRE(std::abs(seen->rates[step - first] - expected) < 1e-12);
  }
  REQUIRE(seen->rates.size() == (is_scaled ? 16U : 4U));
}

TEST(TrainerRanks, ScaleEverySchedulersRates) {
  for (const char* name : {"one_cycle", "cyclic", "swa", "step", "cosine"}) {
    const TemporaryFolder folder;
    for (const int world_size : {2, 1}) {
      run_workers("trainer_scales_schedules",
                  {.world_size = world_size, .arguments = {folder.file("run"), std::string(name)}})
          .expect_success();
    }
  }
}

}  // namespace
}  // namespace cohort::train
