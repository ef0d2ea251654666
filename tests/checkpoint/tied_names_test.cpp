// Stages with one parameter between them find its state in what was saved of the whole model, and of each other.
#include "cohort/checkpoint/state/tied_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/adamw.h>

#include <memory>
#include <string>
#include <vector>

#include "cohort/checkpoint/checkpointer/training_checkpoint.h"
#include "cohort/checkpoint/sharded/sharded_checkpoint.h"
#include "cohort/checkpoint/state/distributed_state.h"
#include "cohort/checkpoint/state/python_state.h"
#include "cohort/comm/shm/make_shm_backend.h"
#include "cohort/parallel/fsdp/fully_shard.h"
#include "tests/checkpoint/temporary_folder.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"

namespace cohort::checkpoint {
namespace {

namespace nn = torch::nn;
using cohort::test::error_of;
using cohort::test::TemporaryFolder;
using torch::optim::AdamW;
using torch::optim::AdamWOptions;

struct TiedMapImpl : nn::Module {
  explicit TiedMapImpl(const at::Tensor& shared) : weight(register_parameter("weight", shared)) {}
  at::Tensor forward(const at::Tensor& x) { return torch::tanh(torch::linear(x, weight, bias)); }
  at::Tensor weight, bias = register_parameter("bias", torch::arange(4.0).mul(0.1));
};
TORCH_MODULE(TiedMap);

// Both layers of a model have one weight; a last stage has one layer.
struct TiedNetImpl : nn::Module {
  explicit TiedNetImpl(bool has_first = true) {
    if (has_first) register_module("first", first);
    register_module("last", last);
  }
  at::Tensor forward(const at::Tensor& x) { return last(first(x)); }
  TiedMap first{torch::arange(16.0).view({4, 4}).mul(0.1).requires_grad_(true)};
  TiedMap last{first->weight};
};
TORCH_MODULE(TiedNet);

const std::vector<std::string> kBothNames{"first.weight", "last.weight"};

AdamWOptions tied_adamw(double rate) { return AdamWOptions(rate).weight_decay(0.1); }

// After two steps; the optimizer knows the weight as "first.weight" alone.
struct TrainedWhole {
  TrainedWhole() : optimizer({net->first->weight, net->first->bias, net->last->bias}, tied_adamw(0.05)) {
    for (int step = 0; step < 2; ++step) {
      optimizer.zero_grad();
      net->forward(torch::arange(8.0).add(step).view({2, 4})).pow(2).mean().backward();
      optimizer.step();
    }
    state = get_state_dict(*net, optimizer);
  }
  TiedNet net;
  AdamW optimizer;
  ModelAndOptimizerState state;
};

ShardedStateDict merged(const ModelAndOptimizerState& state, const std::string& prefix) {
  ShardedStateDict all;
  for (const auto& item : state.model) all.insert(prefix + "model." + item.key(), item.value());
  for (const auto& item : state.optimizer) all.insert(prefix + "optimizer." + item.key(), item.value());
  return all;
}

// As `merged` has put it together.
ModelAndOptimizerState parts_of_merged(const ShardedStateDict& all, const std::string& prefix) {
  ModelAndOptimizerState state;
  const std::string model = prefix + "model.", optimizer = prefix + "optimizer.";
  for (const auto& item : all) {
    const std::string& key = item.key();
    if (key.starts_with(model)) state.model.insert(key.substr(model.size()), item.value());
    if (key.starts_with(optimizer)) state.optimizer.insert(key.substr(optimizer.size()), item.value());
  }
  return state;
}

// A last stage, in a module that puts a prefix before its names or without.
struct LastStage {
  explicit LastStage(const std::string& around = "") : optimizer(stage->parameters(), tied_adamw(0.5)) {
    const torch::NoGradGuard no_grad;
    for (auto& parameter : stage->parameters()) parameter.fill_(-1);
    tie_names(stage->last->weight, kBothNames);
    if (around.empty()) return;
    model = std::make_shared<nn::Module>("Around");
    model->register_module(around, stage.ptr());
  }
  TiedNet stage{false};
  std::shared_ptr<nn::Module> model = stage.ptr();
  AdamW optimizer;
};

void expect_state_of(const TrainedWhole& whole, LastStage& last, const std::string& prefix = "") {
  EXPECT_TRUE(last.stage->last->weight.equal(whole.net->last->weight));
  EXPECT_TRUE(last.stage->last->bias.equal(whole.net->last->bias));
  const auto state = get_optimizer_state_dict(*last.model, last.optimizer);
  for (const char* const field : {"exp_avg", "exp_avg_sq", "step"}) {
    EXPECT_TRUE(state["state." + prefix + "last.weight." + field].tensor.equal(
        whole.state.optimizer[std::string("state.first.weight.") + field].tensor))
        << field;
    EXPECT_TRUE(state["state." + prefix + "last.bias." + field].tensor.equal(
        whole.state.optimizer[std::string("state.last.bias.") + field].tensor))
        << field;
  }
  EXPECT_EQ(last.optimizer.param_groups()[0].options().get_lr(), 0.05);
}

TEST(TiedNames, AStageIsFilledFromTheWholeModelsCheckpoint) {
  const TemporaryFolder folder;
  const TrainedWhole whole;
  EXPECT_FALSE(whole.state.optimizer.contains("state.last.weight.exp_avg"));
  save_sharded(merged(whole.state, "run.3."), folder.file("run"), {.sync_files = false});
  LastStage last;
  auto all = merged(get_state_dict(*last.model, last.optimizer), "run.3.");
  load_sharded(all, folder.file("run"));
  set_state_dict(*last.model, last.optimizer, parts_of_merged(all, "run.3."));
  expect_state_of(whole, last);
}

TEST(TiedNames, StrictlyTheOtherNameIsOneThatIsWanted) {
  const TemporaryFolder folder;
  const TrainedWhole whole;
  ShardedStateDict stored;
  stored.insert("state.first.weight.exp_avg", whole.state.optimizer["state.first.weight.exp_avg"]);
  save_sharded(stored, folder.file("run"), {.sync_files = false});
  LastStage last;
  const auto own = get_optimizer_state_dict(*last.model, last.optimizer);
  ShardedStateDict wanted;
  wanted.insert("state.last.weight.exp_avg", own["state.last.weight.exp_avg"]);
  EXPECT_TRUE(load_sharded(wanted, folder.file("run"), {.strict = true}).missing_keys.empty());
  EXPECT_TRUE(wanted["state.last.weight.exp_avg"].tensor.equal(stored["state.first.weight.exp_avg"].tensor));
}

TEST(TiedNames, ItsOwnNameIsTakenFirst) {
  const TemporaryFolder folder;
  const TrainedWhole whole;
  auto state = whole.state;
  for (const auto& item : whole.state.optimizer) {
    const auto dot = item.key().rfind('.');
    const std::string field = item.key().substr(dot);
    if (!item.key().ends_with("first.weight" + field)) continue;
    state.optimizer.insert(item.key().substr(0, dot - 12) + "last.weight" + field,
                           item.value().is_tensor() ? StateValue(item.value().tensor + 5) : item.value());
  }
  save_sharded(merged(state, ""), folder.file("run"), {.sync_files = false});
  LastStage filled, set;
  auto all = merged(get_state_dict(*filled.model, filled.optimizer), "");
  load_sharded(all, folder.file("run"));
  set_state_dict(*filled.model, filled.optimizer, parts_of_merged(all, ""));
  set_optimizer_state_dict(*set.model, set.optimizer, state.optimizer);
  for (auto* const last : {&filled, &set}) {
    const auto got = get_optimizer_state_dict(*last->model, last->optimizer);
    EXPECT_TRUE(
        got["state.last.weight.exp_avg"].tensor.equal(state.optimizer["state.first.weight.exp_avg"].tensor + 5));
  }
}

TEST(TiedNames, AStateOfTheWholeModelIsSetAsItIs) {
  const TrainedWhole whole;
  LastStage last, of_nested;
  set_state_dict(*last.model, last.optimizer, whole.state, {.strict = false});
  expect_state_of(whole, last);
  set_model_state_dict(*of_nested.model, whole.state.model, {.strict = false});
  auto& optimizer = const_cast<AdamW&>(whole.optimizer);
  const auto nested = nested_optimizer_state(whole.state.optimizer, *whole.net, optimizer, ParameterKeys::kNames);
  set_optimizer_state_dict(*of_nested.model, of_nested.optimizer,
                           flat_optimizer_state(nested, *of_nested.model, of_nested.optimizer));
  expect_state_of(whole, of_nested);
}

TEST(TiedNames, AModuleAroundTheStagePutsAPrefixBeforeAll) {
  const TemporaryFolder folder;
  const TrainedWhole whole;
  auto around = std::make_shared<nn::Module>("Around");
  around->register_module("net", whole.net.ptr());
  auto& optimizer = const_cast<AdamW&>(whole.optimizer);
  save_sharded(merged(get_state_dict(*around, optimizer), ""), folder.file("run"), {.sync_files = false});
  LastStage last("net");
  auto all = merged(get_state_dict(*last.model, last.optimizer), "");
  load_sharded(all, folder.file("run"));
  set_state_dict(*last.model, last.optimizer, parts_of_merged(all, ""));
  expect_state_of(whole, last, "net.");
}

// As Python's save_model, of which the name in the file is the first in the alphabet.
TEST(TiedNames, WeightsThatAFileHasOnce) {
  const TemporaryFolder folder;
  const TrainedWhole whole;
  save_model(*whole.net, folder.file("weights.safetensors"));
  ASSERT_FALSE(load_file(folder.file("weights.safetensors")).contains("last.weight"));
  LastStage last;
  auto weights = get_model_state_dict(*last.model);
  load_sharded(weights, folder.file("weights.safetensors"), {.no_dist = true});
  EXPECT_TRUE(last.stage->last->weight.equal(whole.net->last->weight));
  LastStage again;
  ShardedStateDict values;
  for (const auto& item : load_file(folder.file("weights.safetensors"))) values.insert(item.key(), item.value());
  set_model_state_dict(*again.model, values, {.strict = false});
  EXPECT_TRUE(again.stage->last->weight.equal(whole.net->last->weight));
}

// Named before fully_shard has taken the stage, or its shard after.
TEST(TiedNames, OfShards) {
  const TemporaryFolder folder;
  const TrainedWhole whole;
  save_sharded(merged(whole.state, ""), folder.file("run"), {.no_dist = true, .sync_files = false});
  test::run_rank_threads(
      2,
      [&](int, const Group& group) {
        for (const bool before : {true, false}) {
          TiedNet stage(false);
          if (before) tie_names(stage->last->weight, kBothNames);
          auto model = fully_shard(stage, {.process_group = group});
          if (!before) tie_names(model->parameters()[0], kBothNames);
          AdamW optimizer(model->parameters(), tied_adamw(0.5));
          auto all = merged(get_state_dict(*model, optimizer), "");
          REQUIRE(all["optimizer.state.last.weight.exp_avg"].is_shard());
          load_sharded(all, folder.file("run"), {.no_dist = true});
          set_state_dict(*model, optimizer, parts_of_merged(all, ""));
          AdamW again(model->parameters(), tied_adamw(0.5));
          set_optimizer_state_dict(*model, again, whole.state.optimizer,
                                   {.full_state_dict = true, .broadcast_from_rank0 = true, .process_group = group});
          for (auto* const each : {&optimizer, &again}) {
            const auto full =
                get_optimizer_state_dict(*model, *each, {.full_state_dict = true, .process_group = group});
            REQUIRE(full["state.last.weight.exp_avg"].tensor.equal(
                whole.state.optimizer["state.first.weight.exp_avg"].tensor));
          }
        }
      },
      {.make_backend = comm::make_shm_backend});
}

TEST(TiedNames, Messages) {
  const TemporaryFolder folder;
  ShardedStateDict stored;
  stored.insert("first.weight", torch::ones({4, 3}));
  save_sharded(stored, folder.file("run"), {.sync_files = false});
  LastStage last;
  ShardedStateDict wanted;
  wanted.insert("last.weight", get_model_state_dict(*last.model)["last.weight"]);
  EXPECT_THAT(error_of([&] { load_sharded(wanted, folder.file("run")); }),
              testing::HasSubstr("Size mismatch between saved torch.Size([4, 3]) and current: torch.Size([4, 4]) for "
                                 "first.weight\n"));
  EXPECT_EQ(error_of([] { tie_names(torch::ones({2}), {"weight"}); }),
            "[cohort] tie_names: a tied parameter has two names or more, but got 1\n  hint: give all names that the "
            "whole model has for it, this stage's own among them");
  EXPECT_EQ(error_of([] { tie_names({}, {"a", "b"}); }), "[cohort] tie_names: the parameter is undefined");
}

}  // namespace
}  // namespace cohort::checkpoint
