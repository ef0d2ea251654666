// A Trainer whose ranks read the same, and share out positions or stages.
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>

#include <iomanip>
#include <iostream>
#include <iterator>
#include <memory>
#include <set>
#include <sstream>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/parallel/ddp/distributed_data_parallel.h"
#include "cohort/parallel/fsdp/full_tensor.h"
#include "cohort/parallel/fsdp/fully_shard.h"
#include "cohort/parallel/pipeline/split.h"
#include "cohort/parallel/pipeline/stage_list.h"
#include "cohort/train/strategy/pipeline_step.h"
#include "tests/checkpoint/temporary_folder.h"
#include "tests/support/rank_processes.h"
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
using test::Watch;
using Batch = Loader::Batch;

at::Tensor class_loss(const at::Tensor& scores, const at::Tensor& labels) {
  return torch::nn::functional::cross_entropy(scores, labels);
}

// With dropout batch norm, too: what differs from rank to rank.
torch::nn::Sequential net_of_lines(double dropout) {
  at::manual_seed(11);
  torch::nn::Sequential net(torch::nn::Linear(6, 16), torch::nn::ReLU(), torch::nn::Dropout(dropout));
  if (dropout > 0) net->push_back(torch::nn::BatchNorm1d(16));
  net->push_back(torch::nn::Linear(16, 3));
  return net;
}

// A batch's rows stand for the positions of a sequence.
struct PositionsTask {
  torch::nn::Sequential model;
  torch::optim::Optimizer* optimizer;
  std::optional<DeviceMesh> cp;

  at::Tensor step(torch::nn::SequentialImpl& net, Batch& batch) {
    const auto& [x, labels] = batch;
    if (!cp) return class_loss(net.forward(x), labels);
    const auto part = [&](const at::Tensor& all) { return all.chunk(cp->size())[cp->local_rank()]; };
    return class_loss(net.forward(part(x)), part(labels));
  }
};

// Arguments: folder, cp, last step, dropout. Prints this rank's losses, the epoch's, and what a buffer has.
COHORT_WORKER(trainer_positions) {
  const auto& arguments = cohort::test::worker_arguments();
  auto watch = std::make_shared<Watch>();
  Trainer trainer(of_ranks({.strategy = {.kind = "fsdp"},
                            .dims = {.cp = std::stoll(arguments.at(1))},
                            .max_steps = std::stoll(arguments.at(2)),
                            .gradient_clip_norm = 0.2,
                            .seed = 4,
                            .checkpoint = {.folder = arguments.at(0)},
                            .callbacks = {watch}}));
  const auto net = net_of_lines(std::stod(arguments.at(3)));
  optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(0.02).eps(1e-4));
  PositionsTask task{net, &optimizer, trainer.mesh() ? parallel::axis_of(*trainer.mesh(), "cp") : std::nullopt};
  trainer.fit(task, Loader(small_data(48), {.batch_size = 4, .shuffle = true}));
  std::cout << std::setprecision(12);
  for (const double loss : watch->losses) std::cout << loss << " ";
  std::cout << trainer.metric("train/epoch_loss").value_or(0.0);
  if (!net->buffers().empty()) std::cout << " " << net->buffers().front().sum().item<double>();
}

std::vector<std::vector<double>> losses_of_positions(int world_size, const std::vector<std::string>& arguments) {
  const auto results = run_workers("trainer_positions", {.world_size = world_size, .arguments = arguments});
  results.expect_success();
  std::vector<std::vector<double>> losses;
  for (const auto& rank : results.ranks) {
    std::istringstream stream(rank.output);
    losses.emplace_back(std::istream_iterator<double>(stream), std::istream_iterator<double>());
  }
  return losses;
}

TEST(TrainerLines, RanksOfSequencesTrainAsOne) {
  const auto alone = losses_of_positions(1, {"", "1", "12", "0"});
  const auto parts = losses_of_positions(2, {"", "2", "12", "0"});
  ASSERT_EQ(alone[0].size(), 13U);
  ASSERT_EQ(parts[0].size(), 13U);
  for (size_t i = 0; i < 12; ++i) EXPECT_NEAR((parts[0][i] + parts[1][i]) / 2, alone[0][i], 1e-5) << i;
  EXPECT_NEAR(parts[0][12], alone[0][12], 1e-5);
}

TEST(TrainerLines, RanksOfSequencesGoOnInTheMiddleOfAnEpoch) {
  const TemporaryFolder folder;
  const auto whole = losses_of_positions(2, {"", "2", "12", "0.4"});
  losses_of_positions(2, {folder.file("parts"), "2", "5", "0.4"});
  const auto rest = losses_of_positions(2, {folder.file("parts"), "2", "12", "0.4"});
  for (size_t rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(whole[rank].size(), 14U);
    ASSERT_EQ(rest[rank].size(), 9U);
    for (size_t i = 0; i < 9; ++i) EXPECT_NEAR(rest[rank][i], whole[rank][i + 5], 1e-9) << rank << " " << i;
  }
  EXPECT_NE(whole[0][13], whole[1][13]);
  EXPECT_NE(whole[0][0], whole[1][0]);
}

TEST(TrainerLines, OneRankGoesOnFromThoseOfSequences) {
  const TemporaryFolder folder;
  const auto whole = losses_of_positions(1, {"", "1", "12", "0"});
  losses_of_positions(2, {folder.file("parts"), "2", "5", "0"});
  const auto rest = losses_of_positions(1, {folder.file("parts"), "1", "12", "0"});
  ASSERT_EQ(rest[0].size(), 8U);
  for (size_t i = 0; i < 8; ++i) EXPECT_NEAR(rest[0][i], whole[0][i + 5], 1e-5) << i;
}

TEST(TrainerLines, RanksOfSequencesBeginWithNumbersOfTheirOwn) {
  const TemporaryFolder folder;
  losses_of_positions(1, {folder.file("parts"), "1", "5", "0.4"});
  const auto rest = losses_of_positions(2, {folder.file("parts"), "2", "12", "0.4"});
  EXPECT_EQ(rest[0].size(), 9U);
}

// Arguments: shards, cp, tp, pp. Prints a random number.
COHORT_WORKER(trainer_draws) {
  const auto number = [&](size_t i) { return std::stoll(cohort::test::worker_arguments().at(i)); };
  const Trainer trainer(of_ranks({.strategy = {.kind = "fsdp"},
                                  .dims = {.dp_shard = number(0), .tp = number(2), .pp = number(3), .cp = number(1)},
                                  .seed = 4}));
  std::cout << std::setprecision(12) << at::rand({}).item<double>();
  barrier();  // rank 0 has the store
}

std::vector<std::string> draws(const std::vector<std::string>& dims) {
  const auto results = run_workers("trainer_draws", {.world_size = 4, .arguments = dims});
  results.expect_success();
  std::vector<std::string> numbers;
  for (const auto& rank : results.ranks) numbers.push_back(rank.output);
  return numbers;
}

TEST(TrainerLines, AllDrawOtherNumbersButRanksOfATensorLine) {
  const auto staged = draws({"2", "1", "1", "2"});
  EXPECT_EQ(std::set(staged.begin(), staged.end()).size(), 4U);
  const auto shared = draws({"1", "2", "1", "2"});
  EXPECT_EQ(std::set(shared.begin(), shared.end()).size(), 4U);
  const auto lines = draws({"1", "2", "2", "1"});
  EXPECT_EQ(lines[0], lines[1]);
  EXPECT_EQ(lines[2], lines[3]);
  EXPECT_NE(lines[0], lines[2]);
}

// A half of a model, wrapped by what is given.
struct HalfTask {
  HalfTask(const DeviceMesh& mesh, int num_microbatches = 2, PipelineOptions options = {})
      : pp(*parallel::axis_of(mesh, "pp")) {
    options.loss_fn = loss_of(class_loss);
    options_ = options;
    num_microbatches_ = num_microbatches;
    part = pipeline::split_sequential(net_of_lines(0.0), std::vector<int>{1, 3}).at(pp.local_rank());
  }
  template <class Wrapped>
  HalfTask& take(const Wrapped& wrapped) {
    return take(wrapped, wrapped->parameters());
  }
  template <class Wrapped>
  HalfTask& take(const Wrapped& wrapped, const std::vector<at::Tensor>& parameters) {
    model = wrapped.ptr();
    const PipelineStage stage(wrapped, static_cast<int>(pp.local_rank()), 2, {.group = pp.group()});
    schedule = std::make_unique<PipelineSchedule>("1F1B", std::vector{stage}, num_microbatches_, options_);
    pipeline = schedule.get();
    own_optimizer = std::make_unique<optim::SGD>(parameters, torch::optim::SGDOptions(0.1));
    optimizer = own_optimizer.get();
    return *this;
  }

  DeviceMesh pp;
  torch::nn::Sequential part{nullptr};
  std::shared_ptr<torch::nn::Module> model;
  PipelineSchedule* pipeline = nullptr;
  torch::optim::Optimizer* optimizer = nullptr;

  StepOutput step(torch::nn::Module&, Batch& batch) {
    return pipeline_step(*pipeline, std::get<0>(batch), std::get<1>(batch));
  }
  StepOutput evaluate(torch::nn::Module&, Batch& batch) {
    return pipeline_evaluation(*pipeline, std::get<0>(batch), std::get<1>(batch), class_loss, /*num_rows=*/4);
  }

 private:
  std::unique_ptr<PipelineSchedule> schedule;
  std::unique_ptr<optim::SGD> own_optimizer;
  PipelineOptions options_;
  int num_microbatches_ = 0;
};

COHORT_WORKER(trainer_stages_that_others_have) {
  Trainer trainer(of_ranks({.strategy = {.kind = "fsdp"}, .dims = {.dp_shard = 2, .pp = 2}, .max_steps = 1}));
  const Loader loader(small_data(16), {.batch_size = 4});
  HalfTask bare(*trainer.mesh());
  bare.take(bare.part);
  REQUIRE_EQUAL(
      cohort::test::error_of([&] { trainer.fit(bare, loader); }),
      "[cohort] Trainer: other ranks have this stage, too, with other data, but nothing averages its gradients with "
      "theirs\n  hint: call fully_shard(stage, {.mesh = trainer.options().strategy.fsdp.mesh}) before its optimizer "
      "and its pipeline are made");
  HalfTask sharded(*trainer.mesh());
  sharded.take(fully_shard(sharded.part, {.mesh = trainer.options().strategy.fsdp.mesh}));
  trainer.fit(sharded, loader);
  HalfTask copied(*trainer.mesh());
  copied.take(DistributedDataParallel(copied.part, {.process_group = (*trainer.mesh())["dp"].group()}));
  trainer.fit(copied, loader);
  barrier();  // rank 0 has the store
}

TEST(TrainerLines, StagesThatOtherRanksHaveToo) {
  run_workers("trainer_stages_that_others_have", {.world_size = 4}).expect_success();
}

// Each layer with parameters by itself.
torch::nn::Sequential sharded_in_parts(const torch::nn::Sequential& stage, const fsdp::Options& options) {
  torch::nn::Sequential parts;
  for (auto& layer : *stage) {
    const auto linear = std::dynamic_pointer_cast<torch::nn::LinearImpl>(layer.ptr());
    linear ? parts->push_back(fully_shard(linear, options)) : parts->push_back(layer);
  }
  return parts;
}

COHORT_WORKER(trainer_stages_in_parts) {
  Trainer trainer(of_ranks({.strategy = {.kind = "fsdp"}, .dims = {.dp_shard = 2, .pp = 2}, .max_steps = 1}));
  HalfTask task(*trainer.mesh());
  const auto parts = sharded_in_parts(task.part, {.mesh = trainer.options().strategy.fsdp.mesh});
  std::vector<at::Tensor> shards;
  for (const auto& parameter : fsdp::sharded_parameters(*parts)) shards.push_back(parameter.shard);
  task.take(parts, shards);
  trainer.fit(task, Loader(small_data(16), {.batch_size = 4}));
  const auto trained = trainer.strategy().parameters();
  REQUIRE(trained.size() == 2 && shards.size() == 2);
  for (size_t i = 0; i < 2; ++i) REQUIRE(trained[i].is_same(shards[i]));
  REQUIRE(trainer.strategy().has_own_buffers());
  barrier();  // rank 0 has the store
}

TEST(TrainerLines, StagesInParts) { run_workers("trainer_stages_in_parts", {.world_size = 4}).expect_success(); }

COHORT_WORKER(trainer_stages_of_16_bits) {
  Trainer trainer(
      of_ranks({.strategy = {.kind = "fsdp"}, .dims = {.dp_shard = 2, .pp = 2}, .precision = "bf16", .max_steps = 1}));
  const Loader loader(small_data(16), {.batch_size = 4});
  const auto wrapped_by = [&](const auto& wrap, bool is_converted) {
    HalfTask task(*trainer.mesh());
    if (is_converted) task.part->to(at::kBFloat16);
    task.take(wrap(task.part));
    return cohort::test::error_of([&] { trainer.fit(task, loader); });
  };
  const auto sharded = [&](const auto& part) {
    return fully_shard(part, {.mesh = trainer.options().strategy.fsdp.mesh});
  };
  const auto copied = [&](const auto& part) {
    return DistributedDataParallel(part, {.process_group = (*trainer.mesh())["dp"].group()});
  };
  const std::string text =
      "[cohort] Trainer: precision \"bf16\" converts a model before it is wrapped, but this one, or a part of it, is "
      "wrapped already, and not in bfloat16\n  hint: call net->to(at::kBFloat16) before fully_shard or "
      "DistributedDataParallel, and before its optimizer is made";
  const std::string none = cohort::test::error_of([] {});
  REQUIRE_EQUAL(wrapped_by(sharded, false), text);
  REQUIRE_EQUAL(wrapped_by(copied, false), text);
  REQUIRE_EQUAL(wrapped_by(sharded, true), none);
  REQUIRE_EQUAL(wrapped_by(copied, true), none);
  barrier();  // rank 0 has the store
}

TEST(TrainerLines, StagesThatAreWrappedBeforeTheyAreConverted) {
  run_workers("trainer_stages_of_16_bits", {.world_size = 4}).expect_success();
}

// A model with batch norm, one or two stages of it, each sharded.
struct StagesWithBuffers {
  StagesWithBuffers(const DeviceMesh& mesh, const std::string& name) {
    const auto pp = *parallel::axis_of(mesh, "pp");
    const int num_stages = name == "1F1B" ? 2 : 4;
    const auto parts = pipeline::split_sequential(net_of_lines(0.1), num_stages);
    std::vector<std::shared_ptr<torch::nn::Module>> modules;
    std::vector<PipelineStage> stages;
    for (const int index :
         pipeline::pipeline_stages_of_rank(name, static_cast<int>(pp.local_rank()), 2, num_stages, 2)) {
      const auto stage = fully_shard(parts.at(index), {.mesh = parallel::data_parallel_mesh(mesh)});
      stages.emplace_back(stage, index, num_stages, PipelineStageOptions{.group = pp.group()});
      for (const auto& parameter : stage->parameters()) parameters.push_back(parameter);
      for (const auto& entry : parts.at(index)->named_buffers()) buffers.emplace_back(entry.key(), entry.value());
      modules.push_back(stage.ptr());
    }
    model = modules.size() == 1 ? modules.front() : pipeline::StageList(modules).ptr();
    schedule = std::make_unique<PipelineSchedule>(name, stages, 2, PipelineOptions{.loss_fn = loss_of(class_loss)});
    pipeline = schedule.get();
  }
  StepOutput step(torch::nn::Module&, Batch& batch) {
    return pipeline_step(*pipeline, std::get<0>(batch), std::get<1>(batch));
  }

  std::shared_ptr<torch::nn::Module> model;
  std::vector<at::Tensor> parameters;
  std::vector<std::pair<std::string, at::Tensor>> buffers;
  std::unique_ptr<PipelineSchedule> schedule;
  PipelineSchedule* pipeline = nullptr;
  torch::optim::Optimizer* optimizer = nullptr;
};

// Arguments: folder, schedule. Prints this rank's buffers.
COHORT_WORKER(trainer_stages_with_buffers) {
  const auto& arguments = cohort::test::worker_arguments();
  Trainer trainer(of_ranks({.strategy = {.kind = "fsdp"},
                            .dims = {.dp_shard = 2, .pp = 2},
                            .max_steps = 3,
                            .checkpoint = {.folder = arguments.at(0)}}));
  StagesWithBuffers task(*trainer.mesh(), arguments.at(1));
  optim::SGD optimizer(task.parameters, torch::optim::SGDOptions(0.1));
  task.optimizer = &optimizer;
  trainer.fit(task, Loader(small_data(48), {.batch_size = 4}));
  for (const auto& [key, buffer] : task.buffers) std::cout << key << " " << buffer.sum().item<double>() << "\n";
  barrier();  // rank 0 has the store
}

TEST(TrainerLines, BuffersOfRanksGoOnInOtherStages) {
  const TemporaryFolder folder;
  std::vector<std::string> texts;
  for (const std::string schedule : {"1F1B", "Interleaved1F1B"}) {
    const auto results =
        run_workers("trainer_stages_with_buffers", {.world_size = 4, .arguments = {folder.file("run"), schedule}});
    results.expect_success();
    for (const size_t data_rank : {0, 1}) {
      texts.push_back(results.ranks[data_rank].output + results.ranks[data_rank + 2].output);
    }
  }
  EXPECT_NE(texts[0], texts[1]);
  EXPECT_NE(texts[0].find("running_mean"), std::string::npos);
  EXPECT_EQ(texts[0], texts[2]);
  EXPECT_EQ(texts[1], texts[3]);
}

COHORT_WORKER(trainer_stages_last_batch) {
  const auto fit = [](TrainerOptions options, const data::DataLoaderOptions& loader, int num_microbatches = 2,
                      bool dynamic = false) {
    options.strategy.kind = "fsdp";
    options.dims.pp = 2;
    if (!options.max_steps) options.max_epochs = 2;
    Trainer trainer(of_ranks(std::move(options)));
    HalfTask task(*trainer.mesh(), num_microbatches, {.dynamic_shapes = dynamic});
    task.take(task.part);
    return cohort::test::error_of([&] { trainer.fit(task, Loader(small_data(10), loader)); });
  };
  const std::string none = cohort::test::error_of([] {});
  REQUIRE_EQUAL(
      fit({}, {.batch_size = 4}),
      "[cohort] Trainer: the last batch of an epoch has 2 samples instead of 4, but a pipeline wants batches of "
      "one size\n  hint: set .drop_last = true (DataLoaderOptions) to leave it out");
  REQUIRE_EQUAL(fit({}, {.batch_size = 4}, /*num_microbatches=*/4, /*dynamic=*/true),
                "[cohort] Trainer: the last batch of an epoch has 2 samples, which do not make 4 microbatches\n  hint: "
                "set .drop_last = true (DataLoaderOptions) to leave it out");
  REQUIRE_EQUAL(fit({}, {.batch_size = 4}, /*num_microbatches=*/2, /*dynamic=*/true), none);
  REQUIRE_EQUAL(fit({}, {.batch_size = 4, .drop_last = true}), none);
  REQUIRE_EQUAL(fit({}, {.batch_size = 16}), none);
  REQUIRE_EQUAL(fit({.max_steps = 2}, {.batch_size = 4}), none);
  REQUIRE_EQUAL(fit({.limit_train_batches = 2}, {.batch_size = 4}), none);
  barrier();  // rank 0 has the store
}

// Its model could be called.
struct SilentTask {
  torch::nn::Sequential model;
  PipelineSchedule* pipeline;
  torch::optim::Optimizer* optimizer;
  at::Tensor step(torch::nn::SequentialImpl&, Batch&) { return {}; }
};

struct PredictingTask : HalfTask {
  using HalfTask::HalfTask;
  at::Tensor predict(torch::nn::Module&, Batch& batch) {
    return pipeline_prediction(*pipeline, std::get<0>(batch), /*num_rows=*/4);
  }
};

COHORT_WORKER(trainer_stages_predict) {
  Trainer trainer(of_ranks({.strategy = {.kind = "fsdp"}, .dims = {.pp = 2}, .max_steps = 1}));
  const Loader loader(small_data(10), {.batch_size = 4});
  HalfTask half(*trainer.mesh());
  half.take(half.part);
  SilentTask silent{half.part, half.pipeline, half.optimizer};
  REQUIRE_EQUAL(cohort::test::error_of([&] { trainer.predict(silent, loader); }),
                "[cohort] Trainer: the task cannot predict: its model is a stage of a pipeline\n  hint: give it "
                "predict(net, batch) with pipeline_prediction (pipeline_step.h)");
  const std::string text =
      "[cohort] Trainer: a task with a pipeline needs evaluate(net, batch) to be evaluated, as step(net, batch) runs "
      "backward, too\n  hint: use pipeline_evaluation (pipeline_step.h)";
  REQUIRE_EQUAL(cohort::test::error_of([&] { trainer.validate(silent, loader); }), text);
  REQUIRE_EQUAL(cohort::test::error_of([&] { trainer.fit(silent, loader, loader); }), text);
  PredictingTask task(*trainer.mesh());
  task.take(task.part);
  const auto outputs = trainer.predict(task, loader);
  REQUIRE(outputs.size() == 3);
  auto whole = net_of_lines(0.0);
  size_t i = 0;
  for (auto& [x, labels] : Loader(loader)) {
    const at::Tensor& output = outputs[i++];
    REQUIRE(output.defined() == (trainer.rank() == 1));
    if (output.defined()) REQUIRE(cohort::test::are_rounded_alike(output, whole->forward(x), 6 + 16));
  }
  barrier();  // rank 0 has the store
}

TEST(TrainerLines, StagesPredict) { run_workers("trainer_stages_predict", {.world_size = 2}).expect_success(); }

TEST(TrainerLines, StagesWantBatchesOfOneSize) {
  run_workers("trainer_stages_last_batch", {.world_size = 2}).expect_success();
}

}  // namespace
}  // namespace cohort::train
