// A Trainer whose ranks share each layer's computation, too: the losses are those without, also after going on from checkpoints.
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>

#include <iomanip>
#include <iostream>
#include <iterator>
#include <memory>
#include <sstream>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/dtensor/api/distribute_module.h"
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
    if (const auto tp = mesh ? axis_of(*mesh, "tp") : std::nullopt) {
      distribute_parameters(*model[0], *tp, {{"weight", {Shard(0)}}, {"bias", {Shard(0)}}});
      distribute_parameters(*model[3], *tp, {{"weight", {Shard(1)}}});
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
  Trainer trainer(of_ranks({.strategy = "fsdp",
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

void expect_near(const std::vector<double>& ours, const std::vector<double>& theirs) {
  ASSERT_EQ(ours.size(), theirs.size());
  for (size_t i = 0; i < ours.size(); ++i) EXPECT_NEAR(ours[i], theirs[i], 1e-5) << i;
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
  EXPECT_EQ(refusal_of({.strategy = "single", .dims = {.tp = 2}}),
            "[cohort] Trainer: dims are for strategy \"fsdp\", but this is \"single\"\n  hint: with \"fsdp\" "
            "dims.dp_replicate alone makes copies, as \"ddp\" does");
}

COHORT_WORKER(trainer_dims_messages) {
  REQUIRE_EQUAL(refusal_of({.strategy = "fsdp", .fsdp_replicas = 1, .dims = {.tp = 2}}),
                "[cohort] Trainer: dims exclude fsdp_replicas, fsdp.mesh and fsdp.process_group\n  hint: "
                "dims.dp_replicate and dims.dp_shard say the same");
  REQUIRE_EQUAL(
      refusal_of({.strategy = "fsdp", .dims = {.pp = 2}}),
      "[cohort] Trainer: dims.pp is 1, as the Trainer runs whole models, but got 2\n  hint: a loop by hand can "
      "have a pipeline");
  barrier();  // rank 0 has the store
}

TEST(TrainerDims, MessagesOfRanks) { run_workers("trainer_dims_messages").expect_success(); }

}  // namespace
}  // namespace cohort::train
