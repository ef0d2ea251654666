// The Trainer on several ranks, which are processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <iostream>
#include <memory>

#include "cohort/base/file/file.h"
#include "cohort/comm/collectives/collectives.h"
#include "cohort/data/samplers/distributed_sampler.h"
#include "cohort/parallel/ddp/distributed_data_parallel.h"
#include "tests/checkpoint/temporary_folder.h"
#include "tests/support/rank_processes.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"
#include "tests/support/rounding.h"
#include "tests/train/trainer/rank_options.h"
#include "tests/train/trainer/small_task.h"

namespace cohort::train {
namespace {

using cohort::test::run_workers;
using cohort::test::TemporaryFolder;
using test::Loader;
using test::of_ranks;
using test::small_data;
using test::SmallTask;
using test::Watch;

// Of this rank's part of the weights, and its buffers.
std::string digest(const Strategy& strategy) {
  double sum = 0.0;
  auto tensors = strategy.parameters();
  for (const auto& buffer : strategy.net().buffers()) tensors.push_back(buffer);
  for (const auto& each : tensors) sum = sum * 1.37 + each.detach().to(at::kDouble).abs().sum().item<double>();
  return std::to_string(sum);
}

COHORT_WORKER(trainer_equals_ddp_by_hand) {
  SmallTask task;
  auto watch = std::make_shared<Watch>();
  const Loader loader(small_data(40), {.batch_size = 4, .shuffle = true});
  Trainer trainer(of_ranks({.max_epochs = 2, .gradient_accumulation_steps = 2, .seed = 4, .callbacks = {watch}}));
  REQUIRE(trainer.world_size() == 2 && trainer.options().strategy.kind == "auto");
  const auto result = trainer.fit(task, loader);
  REQUIRE(result.steps == 6);

  SmallTask by_hand;
  at::manual_seed(4 + static_cast<uint64_t>(get_rank()));
  DistributedDataParallel ddp(by_hand.model);
  auto sampler = std::make_shared<data::DistributedSampler>(40, data::DistributedSamplerOptions{.seed = 4});
  const Loader own(small_data(40), {.batch_size = 4, .sampler = sampler});
  std::vector<double> losses;
  for (int epoch = 0; epoch < 2; ++epoch) {
    sampler->set_epoch(epoch);
    int batch = 0;
    for (auto& [input, target] : own) {
      ++batch;
      const bool is_step = batch % 2 == 0 || batch == own.size();
      const std::unique_ptr<ddp::NoSync> local(is_step ? nullptr : new ddp::NoSync(ddp->no_sync()));
      const at::Tensor loss = by_hand.loss(ddp(input), target);
      losses.push_back(loss.item<double>());
      (loss / 2.0).backward();
      if (!is_step) continue;
      by_hand.optimizer.step();
      by_hand.optimizer.zero_grad();
    }
  }
  REQUIRE(watch->losses == losses);
  trainer.strategy().synchronize_buffers();
  for (size_t i = 0; i < task.model->parameters().size(); ++i) {
    REQUIRE(at::equal(task.model->parameters()[i], by_hand.model->parameters()[i]));
  }
}

TEST(TrainerRanks, EqualsALoopByHandWithDdp) { run_workers("trainer_equals_ddp_by_hand").expect_success(); }

COHORT_WORKER(trainer_refuses_before_there_is_a_group) {
  [&]() noexcept { const Trainer trainer({.max_epochs = 0}); }();
}

TEST(TrainerRanks, WhatItRefusesBeforeThereIsAGroupReachesTheLauncher) {
  const TemporaryFolder folder;
  const auto file = folder.file("error.json");
  const auto results = run_workers("trainer_refuses_before_there_is_a_group",
                                   {.world_size = 1, .environment = {{"TORCHELASTIC_ERROR_FILE", file}}});
  EXPECT_EQ(results[0].exit_code, -SIGABRT);
  EXPECT_THAT(base::read_file(file).value(),
              testing::HasSubstr("{\"message\": {\"message\": \"c10::ValueError: [cohort] Trainer: max_epochs is at "
                                 "least 1, but got 0\\n  hint: leave it out, or set it to std::nullopt\""));
}

COHORT_WORKER(trainer_fsdp_equals_ddp) {
  std::vector<std::vector<double>> losses;
  for (const char* strategy : {"ddp", "fsdp"}) {
    SmallTask task(/*drop=*/0.0);
    task.model->norm->options.momentum(0.0);
    auto watch = std::make_shared<Watch>();
    Trainer trainer(of_ranks({.strategy = {.kind = strategy},
                              .max_epochs = 2,
                              .gradient_accumulation_steps = 3,
                              .gradient_clip_norm = 0.3,
                              .callbacks = {watch}}));
    trainer.fit(task, Loader(small_data(40), {.batch_size = 4}), Loader(small_data(9), {.batch_size = 4}));
    losses.push_back(watch->losses);
  }
  REQUIRE(losses[0].size() == 10 && losses[1].size() == 10);
  for (size_t i = 0; i < 10; ++i) REQUIRE(std::abs(losses[0][i] - losses[1][i]) < 1e-5);
}

TEST(TrainerRanks, FsdpTrainsAsDdpDoes) { run_workers("trainer_fsdp_equals_ddp").expect_success(); }

// 9 samples on 2 ranks in batches of 4: the ranks have 5 and 4, and two batches and one.
COHORT_WORKER(trainer_evaluates_each_sample_once) {
  for (const char* strategy : {"ddp", "fsdp"}) {
    SmallTask task;
    Trainer trainer(of_ranks({.strategy = {.kind = strategy}}));
    const auto data = small_data(9);
    const Metrics values = trainer.validate(task, Loader(data, {.batch_size = 4}));
    SmallTask alone;
    alone.model->eval();
    const at::NoGradGuard no_grad;
    const double loss = alone.loss(alone.model(data.tensors()[0]), data.tensors()[1]).item<double>();
    REQUIRE(std::abs(values[0].second - loss) < cohort::test::rounding(at::kFloat, test::kSmallSums, loss));
    REQUIRE(at::cat(trainer.predict(task, Loader(data, {.batch_size = 4}))).size(0) == 5 - get_rank());
  }
}

TEST(TrainerRanks, EvaluateEachSampleOnce) { run_workers("trainer_evaluates_each_sample_once").expect_success(); }

// Two runs, one of them in two halves, have the same losses and weights.
COHORT_WORKER(trainer_resumes) {
  const std::string folder = cohort::test::worker_arguments()[0];
  const std::string strategy = cohort::test::worker_arguments()[1];
  const Loader loader(small_data(48), {.batch_size = 4, .shuffle = true});
  std::vector<double> whole;
  std::vector<double> halves;
  std::string ends[2];
  for (const int64_t cut : {0, 8, -1}) {
    SmallTask task;
    auto watch = std::make_shared<Watch>(std::max<int64_t>(cut, 0));
    TrainerOptions options{.strategy = {.kind = strategy}, .max_epochs = 3, .seed = 2, .callbacks = {watch}};
    if (cut != 0) options.checkpoint = {.folder = folder};
    Trainer trainer(of_ranks(options));
    trainer.fit(task, loader, Loader(small_data(9), {.batch_size = 4}));
    trainer.strategy().synchronize_buffers();
    auto& losses = cut == 0 ? whole : halves;
    losses.insert(losses.end(), watch->losses.begin(), watch->losses.end());
    ends[cut == 0 ? 0 : 1] = digest(trainer.strategy());
    barrier();
  }
  REQUIRE(whole == halves);
  REQUIRE(ends[0] == ends[1]);
}

TEST(TrainerRanks, GoOnInTheMiddleOfAnEpochWithTheSameBits) {
  for (const char* strategy : {"ddp", "fsdp"}) {
    const TemporaryFolder folder;
    run_workers("trainer_resumes", {.arguments = {folder.file("run"), strategy}}).expect_success();
  }
}

// Trains to step 4 of 12, or goes on to the end.
COHORT_WORKER(trainer_in_parts) {
  const auto& arguments = cohort::test::worker_arguments();
  SmallTask task(/*drop=*/0.0);
  auto watch = std::make_shared<Watch>(arguments[1] == "first" ? 4 : 0);
  TrainerOptions options{.strategy = {.kind = "ddp"}, .max_epochs = 2, .seed = 2, .callbacks = {watch}};
  options.checkpoint = {.folder = arguments[0]};
  if (arguments.size() > 2 && arguments[2] == "scale") {
    options.checkpoint.on_new_world_size = OnNewWorldSize::kScaleLearningRate;
  }
  if (arguments.size() > 2 && arguments[2] == "refuse") {
    options.checkpoint.on_new_world_size = OnNewWorldSize::kRefuse;
  }
  Trainer trainer(of_ranks(options));
  try {
    trainer.fit(task, Loader(small_data(48), {.batch_size = 4, .shuffle = true}));
  } catch (const c10::ValueError& error) {
    std::cout << test::text_of(error) << "\n" << std::flush;
    return;
  }
  std::cout << "steps " << trainer.step() << ", batches " << watch->losses.size() << ", accumulation "
            << trainer.gradient_accumulation_steps() << ", rate " << task.optimizer.param_groups()[0].options().get_lr()
            << "\n"
            << std::flush;
}

TEST(TrainerRanks, GoOnWithAnotherNumberOfRanks) {
  const auto output_of = [](int world_size, const std::vector<std::string>& arguments) {
    const auto results = run_workers("trainer_in_parts", {.world_size = world_size, .arguments = arguments});
    results.expect_success();
    return results[0].output;
  };
  const TemporaryFolder folder;
  // 48 samples, 2 ranks: 6 steps of 8 samples an epoch.
  EXPECT_EQ(output_of(2, {folder.file("a"), "first"}), "steps 4, batches 4, accumulation 1, rate 0.05\n");
  EXPECT_EQ(output_of(1, {folder.file("a"), "refuse", "refuse"}),
            "[cohort] Trainer: the checkpoint was made by 2 ranks, but the job has 1\n  hint: set "
            "checkpoint.on_new_world_size to another value\n");
  EXPECT_EQ(output_of(1, {folder.file("a"), "rest"}), "steps 12, batches 16, accumulation 2, rate 0.05\n");
  output_of(2, {folder.file("b"), "first"});
  EXPECT_EQ(output_of(1, {folder.file("b"), "rest", "scale"}), "steps 20, batches 16, accumulation 1, rate 0.025\n");
  output_of(1, {folder.file("c"), "first"});
  EXPECT_EQ(output_of(2, {folder.file("c"), "rest"}), "steps 24, batches 20, accumulation 1, rate 0.05\n");
}

COHORT_WORKER(trainer_refuses) {
  const auto text_of = [](const TrainerOptions& options) {
    try {
      Trainer trainer{options};
    } catch (const c10::ValueError& error) {
      return test::text_of(error);
    }
    return std::string("no error");
  };
  REQUIRE(text_of({.strategy = {.kind = "single"}}) ==
          "[cohort] Trainer: strategy \"single\" is for one process, but the job has 2\n  hint: use strategy \"ddp\" "
          "or \"auto\", or start the program without a launcher");
  REQUIRE(text_of({.strategy = {.devices = 4}}) ==
          "[cohort] Trainer: devices = 4 asks for as many processes on each host, but this one has 2\n  hint: start it "
          "with cohort run "
          "--standalone --nproc-per-node 4 PROGRAM, or with cohort::spawn; without devices the Trainer takes what the "
          "launcher gives");
  REQUIRE(text_of({.strategy = {.num_nodes = 2}}) ==
          "[cohort] Trainer: num_nodes = 2 with 2 processes on each host makes 4 processes, but the job has 2\n  hint: "
          "start "
          "it on each host with cohort run --nnodes 2 --nproc-per-node 2 --rdzv-endpoint HOST:PORT PROGRAM; "
          "without num_nodes the Trainer takes what the launcher gives");
  REQUIRE(text_of({.strategy = {.kind = "fsdp"}, .fsdp_replicas = 3}) ==
          "[cohort] Trainer: fsdp_replicas = 3: all replicas have the same number of ranks, but the job has 2\n  hint: "
          "use a number that divides 2");
  {
    // Hosts with unequal numbers of ranks: of three on each, or one, on this one.
    setenv("LOCAL_WORLD_SIZE", get_rank() == 0 ? "3" : "1", 1);
    REQUIRE(text_of({.strategy = {.backend = cohort::test::backend_of_tests()}}) == "no error");
    setenv("LOCAL_WORLD_SIZE", "2", 1);
  }
  Trainer trainer(of_ranks({.max_epochs = 1}));
  SmallTask task;
  const auto sampler = std::make_shared<data::SequentialSampler>(8 + 4 * get_rank());
  std::string text;
  try {
    trainer.fit(task, Loader(small_data(12), {.batch_size = 4, .sampler = sampler}));
  } catch (const c10::ValueError& error) {
    text = test::text_of(error);
  }
  REQUIRE(text == "[cohort] Trainer: this rank has " + std::to_string(2 + get_rank()) +
                      " batches an epoch, but others have from 2 to 3, so some would wait forever\n  hint: give the "
                      "loader a DistributedSampler, or no sampler, so that the Trainer shards the data");
}

TEST(TrainerRanks, RefuseWhatDoesNotFitTheJob) { run_workers("trainer_refuses").expect_success(); }

}  // namespace
}  // namespace cohort::train
