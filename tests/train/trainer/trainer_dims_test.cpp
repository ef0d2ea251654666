// A Trainer whose ranks share each layer's computation, too: the losses are those without, also after going on from checkpoints.
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>

#include <functional>
#include <iomanip>
#include <iostream>
#include <iterator>
#include <memory>
#include <sstream>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/dtensor/api/distribute_module.h"
#include "cohort/parallel/fsdp/fully_shard.h"
#include "cohort/parallel/pipeline/split.h"
#include "cohort/train/metrics/accuracy.h"
#include "cohort/train/strategy/pipeline_step.h"
#include "tests/checkpoint/temporary_folder.h"
#include "tests/support/rank_processes.h"
#include "tests/support/require.h"
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

struct DimsTask {
  explicit DimsTask(const std::optional<DeviceMesh>& mesh) {
    at::manual_seed(11);
    model = torch::nn::Sequential(torch::nn::Linear(6, 16), torch::nn::ReLU(), torch::nn::Dropout(0.2),
                                  torch::nn::Linear(16, 3));
    if (const auto tp = mesh ? parallel::axis_of(*mesh, "tp") : std::nullopt) {
      dtensor::distribute_parameters(*model[0], *tp, {{"weight", {Shard(0)}}, {"bias", {Shard(0)}}});
      dtensor::distribute_parameters(*model[3], *tp, {{"weight", {Shard(1)}}});
      distribute_module(*model, *tp);
    }
    optimizer = std::make_unique<optim::AdamW>(model->parameters(), torch::optim::AdamWOptions(0.02).eps(1e-4));
  }
  torch::nn::Sequential model{nullptr};
  std::unique_ptr<optim::AdamW> optimizer;
};

// Arguments: folder, copies, shards, tp, last step. Prints this rank's losses, and that of validation.
COHORT_WORKER(trainer_dims) {
  const auto& arguments = cohort::test::worker_arguments();
  const auto number = [&](size_t i) { return std::stoll(arguments.at(i)); };
  auto watch = std::make_shared<Watch>();
  Trainer trainer(of_ranks({.strategy = {.kind = "fsdp"},
                            .dims = {.dp_replicate = number(1), .dp_shard = number(2), .tp = number(3)},
                            .max_steps = number(4),
                            .gradient_clip_norm = 0.5,
                            .seed = 4,
                            .checkpoint = {.folder = arguments.at(0)},
                            .callbacks = {watch}}));
  REQUIRE(trainer.mesh().has_value());
  DimsTask parts(trainer.mesh());
  Task task{.model = parts.model,
            .loss = [](const at::Tensor& scores,
                       const at::Tensor& labels) { return torch::nn::functional::cross_entropy(scores, labels); },
            .optimizer = parts.optimizer.get()};
  const auto result = trainer.fit(task, Loader(small_data(48), {.batch_size = 4, .shuffle = true}),
                                  Loader(small_data(9), {.batch_size = 2}));
  REQUIRE(result.steps == number(4));
  std::cout << std::setprecision(9);
  for (const double loss : watch->losses) std::cout << loss << " ";
  std::cout << trainer.validate(task, Loader(small_data(9), {.batch_size = 2}))[0].second << "\n";
}

std::vector<double> numbers_of(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<double>(stream), std::istream_iterator<double>()};
}

struct DimsRun {
  int world_size;
  std::string copies, shards, tp, last_step;
};

std::vector<std::vector<double>> losses_of(const DimsRun& run, const std::string& folder) {
  const auto results =
      run_workers("trainer_dims",
                  {.world_size = run.world_size, .arguments = {folder, run.copies, run.shards, run.tp, run.last_step}});
  results.expect_success();
  std::vector<std::vector<double>> losses;
  for (const auto& rank : results.ranks) losses.push_back(numbers_of(rank.output));
  return losses;
}

void expect_near(const std::vector<double>& ours, const std::vector<double>& theirs, double tolerance = 1e-5) {
  ASSERT_EQ(ours.size(), theirs.size());
  for (size_t i = 0; i < ours.size(); ++i) EXPECT_NEAR(ours[i], theirs[i], tolerance) << i;
}

TEST(TrainerDims, RanksOfOneLineReadTheSameAndTrainAsOne) {
  const TemporaryFolder folder;
  const auto alone = losses_of({1, "1", "-1", "1", "12"}, folder.file("alone"));
  const auto line = losses_of({2, "1", "1", "2", "12"}, folder.file("line"));
  for (const auto& of_rank : line) expect_near(of_rank, alone[0]);
}

TEST(TrainerDims, GoOnFromEachOthersCheckpoints) {
  const TemporaryFolder folder;
  const auto whole = losses_of({2, "1", "2", "1", "9"}, folder.file("whole"));
  const auto first = losses_of({4, "1", "2", "2", "3"}, folder.file("parts"));
  const auto second = losses_of({4, "2", "1", "2", "6"}, folder.file("parts"));
  const auto third = losses_of({2, "2", "1", "1", "9"}, folder.file("parts"));
  for (size_t rank = 0; rank < 2; ++rank) {
    for (const size_t tp : {0, 1}) {
      expect_near({first[2 * rank + tp].begin(), first[2 * rank + tp].end() - 1},
                  {whole[rank].begin(), whole[rank].begin() + 3});
      expect_near({second[2 * rank + tp].begin(), second[2 * rank + tp].end() - 1},
                  {whole[rank].begin() + 3, whole[rank].begin() + 6});
    }
    expect_near(third[rank], {whole[rank].begin() + 6, whole[rank].end()});
  }
}

std::string refusal_of(TrainerOptions options) {
  return cohort::test::error_of([&] { Trainer trainer(test::quiet(std::move(options))); });
}

TEST(TrainerDims, Messages) {
  EXPECT_EQ(refusal_of({.strategy = {.kind = "single"}, .dims = {.tp = 2}}),
            "[cohort] Trainer: dims are for strategy \"fsdp\", but this is \"single\"\n  hint: use \"fsdp\" with "
            "dims.dp_replicate alone for replicas, as in \"ddp\"");
}

COHORT_WORKER(trainer_dims_messages) {
  REQUIRE_EQUAL(refusal_of({.strategy = {.kind = "fsdp"}, .fsdp_replicas = 1, .dims = {.tp = 2}}),
                "[cohort] Trainer: dims exclude fsdp_replicas, strategy.fsdp.mesh and strategy.fsdp.process_group\n"
                "  hint: use dims.dp_replicate and dims.dp_shard instead");
  REQUIRE_EQUAL(
      refusal_of({.strategy = {.kind = "fsdp"}, .dims = {.pp = 2}, .checkpoint = {.memory_every_steps = 1}}),
      "[cohort] Trainer: checkpoint.memory_every_steps and dims.pp exclude each other, as a rank that is lost may have "
      "been the only one with its stage\n  hint: set checkpoint.every_steps to save in files");
  barrier();  // rank 0 has the store
}

at::Tensor cross_entropy(const at::Tensor& scores, const at::Tensor& labels) {
  return torch::nn::functional::cross_entropy(scores, labels);
}

// The model in two stages, or whole.
struct StagedTask {
  explicit StagedTask(const DeviceMesh& mesh, double dropout = 0.0) {
    at::manual_seed(11);
    torch::nn::Sequential net(torch::nn::Linear(6, 16), torch::nn::ReLU(), torch::nn::Dropout(dropout),
                              torch::nn::Linear(16, 3));
    const auto pp = parallel::axis_of(mesh, "pp");
    if (!pp) {
      model = net.ptr();
      parameters = net->parameters();
      return;
    }
    const auto part = pipeline::split_sequential(net, std::vector<int>{1, 3}).at(pp->local_rank());
    const auto dp = parallel::data_parallel_mesh(mesh);
    dp ? take(fully_shard(part.ptr(), {.mesh = dp}), *pp) : take(part, *pp);
  }
  template <class Part>
  void take(const Part& part, const DeviceMesh& pp) {
    model = part.ptr();
    parameters = part->parameters();
    const PipelineStage stage(part, static_cast<int>(pp.local_rank()), 2, {.group = pp.group()});
    schedule = std::make_unique<PipelineSchedule>("1F1B", std::vector{stage}, 2,
                                                  PipelineOptions{.loss_fn = cohort::loss_of(cross_entropy)});
    pipeline = schedule.get();
  }

  std::shared_ptr<torch::nn::Module> model;
  std::vector<at::Tensor> parameters;
  std::unique_ptr<PipelineSchedule> schedule;
  PipelineSchedule* pipeline = nullptr;
  torch::optim::Optimizer* optimizer = nullptr;
  std::vector<TaskMetric> metrics = {{"accuracy", Accuracy()}};
  std::function<void()> after_backward = {};

  using Batch = Loader::Batch;
  StepOutput step(torch::nn::Module& net, Batch& batch) {
    const auto& [input, target] = batch;
    if (pipeline) {
      auto output = pipeline_step(*pipeline, input, target);
      if (after_backward) after_backward();
      return output;
    }
    const auto scores = dynamic_cast<torch::nn::SequentialImpl&>(net).forward(input);
    return {cross_entropy(scores, target), scores, target};
  }
  StepOutput evaluate(torch::nn::Module& net, Batch& batch) {
    const auto& [input, target] = batch;
    return pipeline ? pipeline_evaluation(*pipeline, input, target, cross_entropy, /*num_rows=*/2) : step(net, batch);
  }
};

// Arguments: folder, shards, pp, last step, dropout, batches per step, precision. Prints this rank's losses, and what validation
// gives.
COHORT_WORKER(trainer_stages) {
  const auto& arguments = cohort::test::worker_arguments();
  const auto number = [&](size_t i) { return std::stoll(arguments.at(i)); };
  auto watch = std::make_shared<Watch>();
  Trainer trainer(of_ranks({.strategy = {.kind = "fsdp"},
                            .dims = {.dp_shard = number(1), .pp = number(2)},
                            .precision = arguments.at(6),
                            .max_steps = number(3),
                            .gradient_accumulation_steps = number(5),
                            .gradient_clip_norm = number(5) > 1 ? 5 : 0.2,
                            .seed = 4,
                            .checkpoint = {.folder = arguments.at(0)},
                            .callbacks = {watch}}));
  StagedTask task(*trainer.mesh(), std::stod(arguments.at(4)));
  optim::AdamW adam(task.parameters, torch::optim::AdamWOptions(0.02).eps(1e-4));
  optim::SGD sgd(task.parameters, torch::optim::SGDOptions(0.3));  // to which the gradients' size matters
  task.optimizer = number(5) > 1 ? static_cast<torch::optim::Optimizer*>(&sgd) : &adam;
  const Loader validation(small_data(9), {.batch_size = 2});
  trainer.fit(task, Loader(small_data(48), {.batch_size = 4, .shuffle = true}), validation);
  std::cout << std::setprecision(9);
  for (const double loss : watch->losses) std::cout << loss << " ";
  for (const auto& [name, value] : trainer.validate(task, validation)) std::cout << value << " ";
}

std::vector<std::vector<double>> losses_of_stages(int world_size, std::vector<std::string> arguments) {
  if (arguments.size() < 7) arguments.insert(arguments.end(), {"1", "32"});
  const auto results = run_workers("trainer_stages", {.world_size = world_size, .arguments = arguments});
  results.expect_success();
  std::vector<std::vector<double>> losses;
  for (const auto& rank : results.ranks) losses.push_back(numbers_of(rank.output));
  return losses;
}

TEST(TrainerDims, StagesTrainAsOneModelAndGoOnFromEachOthersCheckpoints) {
  const TemporaryFolder folder;
  const auto whole = losses_of_stages(2, {folder.file("whole"), "2", "1", "6", "0"});
  ASSERT_EQ(whole[0].size(), 8U);
  const auto staged = losses_of_stages(4, {folder.file("staged"), "2", "2", "6", "0"});
  for (size_t rank = 0; rank < 4; ++rank) expect_near(staged[rank], whole[rank % 2]);
  losses_of_stages(4, {folder.file("parts"), "2", "2", "3", "0"});
  const auto second = losses_of_stages(2, {folder.file("parts"), "2", "1", "5", "0"});
  const auto third = losses_of_stages(4, {folder.file("parts"), "2", "2", "6", "0"});
  for (size_t rank = 0; rank < 2; ++rank) {
    expect_near({second[rank].begin(), second[rank].end() - 2}, {whole[rank].begin() + 3, whole[rank].begin() + 5});
    expect_near(third[rank], {whole[rank].begin() + 5, whole[rank].end()});
    expect_near(third[rank + 2], third[rank]);
  }
}

TEST(TrainerDims, StagesDrawTheSameNumbersAfterGoingOn) {
  const TemporaryFolder folder;
  const auto whole = losses_of_stages(2, {folder.file("whole"), "1", "2", "6", "0.4"});
  losses_of_stages(2, {folder.file("parts"), "1", "2", "3", "0.4"});
  const auto second = losses_of_stages(2, {folder.file("parts"), "1", "2", "6", "0.4"});
  expect_near(second[0], {whole[0].begin() + 3, whole[0].end()});
}

TEST(TrainerDims, StagesAddUpBatches) {
  const TemporaryFolder folder;
  for (const std::string precision : {"32", "16-mixed"}) {
    const auto whole = losses_of_stages(2, {"", "2", "1", "5", "0", "3", precision});
    const auto staged = losses_of_stages(4, {"", "2", "2", "5", "0", "3", precision});
    ASSERT_EQ(whole[0].size(), 17U);
    for (size_t rank = 0; rank < 4; ++rank) {
      expect_near(staged[rank], whole[rank % 2], precision == "32" ? 1e-5 : 2e-3);
    }
  }
}

TEST(TrainerDims, FewerRanksOfStagesKeepTheGlobalBatch) {
  const TemporaryFolder folder;
  const auto whole = losses_of_stages(4, {folder.file("whole"), "2", "2", "6", "0"});
  losses_of_stages(4, {folder.file("parts"), "2", "2", "3", "0"});
  const auto rest = losses_of_stages(2, {folder.file("parts"), "1", "2", "6", "0"});
  ASSERT_EQ(rest[0].size(), 8U);  // two batches a step, and what validation gives
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(rest[0][2 * i] + rest[0][2 * i + 1], whole[0][3 + i] + whole[1][3 + i], 1e-5) << i;
  }
  expect_near({rest[0].end() - 2, rest[0].end()}, {whole[0].end() - 2, whole[0].end()});
}

// Which batches have changed it.
struct ChangesOf : Callback {
  explicit ChangesOf(at::Tensor of) : parameter(std::move(of)) {}
  void on_train_batch_start(Trainer&, int64_t) override { before = parameter.detach().clone(); }
  void on_train_batch_end(Trainer&, const StepReport&) override { changes += at::equal(before, parameter) ? "-" : "+"; }
  at::Tensor parameter, before;
  std::string changes;
};

// A gradient that is infinite on one stage alone.
COHORT_WORKER(trainer_stages_infinite) {
  const auto changes = std::make_shared<ChangesOf>(at::Tensor());
  Trainer trainer(of_ranks({.strategy = {.kind = "fsdp"},
                            .dims = {.pp = 2},
                            .precision = "16-mixed",
                            .max_steps = 6,
                            .seed = 4,
                            .callbacks = {changes}}));
  StagedTask task(*trainer.mesh());
  optim::AdamW optimizer(task.parameters, torch::optim::AdamWOptions(0.02));
  task.optimizer = &optimizer;
  changes->parameter = task.parameters.front();
  int64_t num_steps = 0;
  task.after_backward = [&] {
    if (++num_steps == 4 && get_rank() == 0) task.parameters.front().mutable_grad().fill_(INFINITY);
  };
  trainer.fit(task, Loader(small_data(48), {.batch_size = 4, .shuffle = true}));
  std::cout << changes->changes;
}

TEST(TrainerDims, AllStagesLeaveOutAStepThatOneCannotMake) {
  const auto results = run_workers("trainer_stages_infinite", {.world_size = 2});
  results.expect_success();
  for (const auto& rank : results.ranks) EXPECT_EQ(rank.output, "+++-++");
}

COHORT_WORKER(trainer_stages_bad_loss) {
  Trainer trainer(of_ranks({.strategy = {.kind = "fsdp"}, .dims = {.pp = 2}}));
  StagedTask task(*trainer.mesh());
  const auto bad = [](const at::Tensor& scores, const at::Tensor&) {
    TORCH_CHECK(false, "there is no such class");
    return scores;
  };
  const auto text = cohort::test::error_of([&] {
    pipeline_evaluation(*task.pipeline, at::zeros({2, 6}), at::zeros({2}, at::kLong), bad, /*num_rows=*/2);
  });
  REQUIRE_EQUAL(text, get_rank() == 1
                          ? "there is no such class"
                          : "[cohort] pipeline: the mean loss could not be computed\n  rank 1: there is no such class");
  barrier();  // rank 0 has the store
}

TEST(TrainerDims, AllStagesLearnThatTheLossOfAnEvaluationFailed) {
  run_workers("trainer_stages_bad_loss", {.world_size = 2}).expect_success();
}

COHORT_WORKER(trainer_stages_messages) {
  const auto refusal = [](TrainerOptions options, const std::function<void(StagedTask&)>& change) {
    options.strategy.kind = "fsdp";
    options.dims.pp = 2;
    options.max_steps = 1;
    Trainer trainer(of_ranks(std::move(options)));
    StagedTask task(*trainer.mesh());
    optim::AdamW optimizer(task.parameters, torch::optim::AdamWOptions(0.02));
    task.optimizer = &optimizer;
    change(task);
    return cohort::test::error_of([&] { trainer.fit(task, Loader(small_data(8), {.batch_size = 4})); });
  };
  REQUIRE_EQUAL(refusal({}, [](StagedTask& task) { task.pipeline = nullptr; }),
                "[cohort] Trainer: dims.pp = 2, but the task has no pipeline\n  hint: make its model a stage, and let "
                "its member `pipeline` point to the PipelineSchedule that runs it (pipeline_step.h)");
  REQUIRE_EQUAL(refusal({},
                        [](StagedTask& task) {
                          task.metrics = {{"own", test::Accuracy()}};
                        }),
                "[cohort] Trainer: metric \"own\" has no sums(), but only the ranks with the last stage see outputs\n  "
                "hint: see task_metric.h for sums() and value()");
  barrier();  // rank 0 has the store
}

COHORT_WORKER(trainer_stages_tuner_message) {
  Trainer trainer(of_ranks({.strategy = {.kind = "fsdp"}, .dims = {.pp = 2}}));
  StagedTask task(*trainer.mesh());
  optim::AdamW optimizer(task.parameters, torch::optim::AdamWOptions(0.02));
  task.optimizer = &optimizer;
  REQUIRE_EQUAL(
      cohort::test::error_of([&] { trainer.find_learning_rate(task, Loader(small_data(8), {.batch_size = 4})); }),
      "[cohort] Trainer: find_learning_rate does not support models in stages, whose steps also run backward\n  hint: "
      "run a few fits with max_steps instead");
  barrier();  // rank 0 has the store
}

TEST(TrainerDims, TunerOfStagesMessage) {
  run_workers("trainer_stages_tuner_message", {.world_size = 2}).expect_success();
}

TEST(TrainerDims, MessagesOfStages) { run_workers("trainer_stages_messages", {.world_size = 2}).expect_success(); }

TEST(TrainerDims, MessagesOfRanks) { run_workers("trainer_dims_messages").expect_success(); }

}  // namespace
}  // namespace cohort::train
