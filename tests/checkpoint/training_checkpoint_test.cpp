#include "cohort/checkpoint/checkpointer/training_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "cohort/checkpoint/optimizer/optimizer_state.h"
#include "tests/checkpoint/temporary_folder.h"
#include "tests/data/error_text.h"

namespace cohort::checkpoint {
namespace {

namespace nn = torch::nn;
namespace optim = torch::optim;
using test::error_text;

nn::Sequential make_net() { return nn::Sequential(nn::Linear(4, 8), nn::ReLU(), nn::Dropout(0.5), nn::Linear(8, 2)); }

// Two groups with options of their own, so that both must come back.
std::vector<optim::OptimizerParamGroup> groups(nn::Sequential& net) {
  const auto all = net->parameters();
  return {optim::OptimizerParamGroup({all[0], all[1]}), optim::OptimizerParamGroup({all[2], all[3]})};
}

struct OptimizerCase {
  std::string name;
  std::function<std::unique_ptr<optim::Optimizer>(nn::Sequential&, double lr)> make;
};

template <typename Optimizer, typename Options>
OptimizerCase make_case(std::string name, Options options) {
  return {std::move(name), [options](nn::Sequential& net, double lr) mutable -> std::unique_ptr<optim::Optimizer> {
            return std::make_unique<Optimizer>(groups(net), options.lr(lr));
          }};
}

std::vector<OptimizerCase> cases() {
  return {make_case<optim::SGD>("Sgd", optim::SGDOptions(0.1)),
          make_case<optim::SGD>("SgdMomentum", optim::SGDOptions(0.1).momentum(0.9).nesterov(true)),
          make_case<optim::Adam>("Adam", optim::AdamOptions(0.1).amsgrad(true)),
          make_case<optim::AdamW>("AdamW", optim::AdamWOptions(0.1).betas({0.8, 0.95}).weight_decay(0.2)),
          make_case<optim::Adagrad>("Adagrad", optim::AdagradOptions(0.1).lr_decay(0.01)),
          make_case<optim::RMSprop>("RmsProp", optim::RMSpropOptions(0.1).momentum(0.5).centered(true))};
}

void train(nn::Sequential& net, optim::Optimizer& optimizer, int num_steps) {
  for (int step = 0; step < num_steps; ++step) {
    // A schedule in one group only: its rate must survive the checkpoint.
    auto& options = optimizer.param_groups()[0].options();
    options.set_lr(options.get_lr() * 0.9);
    optimizer.zero_grad();
    const at::Tensor input = torch::randn({5, 4});
    nn::functional::mse_loss(net->forward(input), input.narrow(1, 0, 2)).backward();
    optimizer.step();
  }
}

class Resume : public testing::TestWithParam<OptimizerCase> {};
INSTANTIATE_TEST_SUITE_P(TrainingCheckpoint, Resume, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

TEST_P(Resume, EndsWithTheBitsOfARunThatWasNotStopped) {
  const test::TemporaryFolder folder;
  torch::manual_seed(3);
  nn::Sequential net = make_net();
  const auto optimizer = GetParam().make(net, 0.05);
  train(net, *optimizer, 4);
  save_checkpoint(*net, optimizer.get(), folder.file("run"), {.step = 4, .epoch = 1, .batch = 2});
  train(net, *optimizer, 4);

  torch::manual_seed(99);
  nn::Sequential resumed = make_net();
  const auto other = GetParam().make(resumed, 123.0);
  const TrainingProgress progress = load_checkpoint(*resumed, other.get(), folder.file("run"));
  EXPECT_EQ(progress.step, 4);
  EXPECT_EQ(progress.epoch, 1);
  EXPECT_EQ(progress.batch, 2);
  train(resumed, *other, 4);
  const StateDict expected = state_dict(*net);
  for (const auto& item : state_dict(*resumed)) EXPECT_TRUE(item.value().equal(expected[item.key()])) << item.key();
}

TEST(TrainingCheckpoint, KeepsExtrasAndCanLeaveTheRandomNumbersAlone) {
  const test::TemporaryFolder folder;
  nn::Sequential net = make_net();
  TrainingProgress progress{.step = 7, .metadata = {{"config", "small"}}};
  progress.extra.insert("rng.1", rng_state());
  save_checkpoint(*net, nullptr, folder.file("run"), progress);
  torch::manual_seed(5);
  const at::Tensor before = rng_state();
  const TrainingProgress loaded = load_checkpoint(*net, nullptr, folder.file("run"), {.restore_rng = false});
  EXPECT_TRUE(rng_state().equal(before));
  EXPECT_EQ(loaded.metadata, (FileMetadata{{"config", "small"}}));
  EXPECT_TRUE(loaded.extra["rng.1"].equal(progress.extra["rng.1"]));
}

TEST(OptimizerState, UsesPyTorchsFlatKeys) {
  nn::Linear net(2, 1);
  optim::AdamW optimizer(net->parameters(), optim::AdamWOptions(0.1));
  net->forward(torch::ones({1, 2})).sum().backward();
  optimizer.step();
  const StateDict state = optimizer_state_dict(optimizer, net->named_parameters());
  EXPECT_THAT(state.keys(),
              testing::ElementsAre("state.weight.step", "state.weight.exp_avg", "state.weight.exp_avg_sq",
                                   "param_groups.weight.lr", "param_groups.weight.betas", "param_groups.weight.eps",
                                   "param_groups.weight.weight_decay", "param_groups.weight.amsgrad", "state.bias.step",
                                   "state.bias.exp_avg", "state.bias.exp_avg_sq", "param_groups.bias.lr",
                                   "param_groups.bias.betas", "param_groups.bias.eps", "param_groups.bias.weight_decay",
                                   "param_groups.bias.amsgrad"));
}

TEST(OptimizerState, AParameterWithoutStateHasNoneAfterwards) {
  nn::Linear net(2, 1);
  optim::SGD fresh(net->parameters(), optim::SGDOptions(0.1).momentum(0.9));
  const StateDict state = optimizer_state_dict(fresh, net->named_parameters());
  optim::SGD used(net->parameters(), optim::SGDOptions(0.2).momentum(0.9));
  net->forward(torch::ones({1, 2})).sum().backward();
  used.step();
  load_optimizer_state_dict(used, net->named_parameters(), state);
  EXPECT_TRUE(used.state().empty());
  EXPECT_EQ(used.param_groups()[0].options().get_lr(), 0.1);
}

// "a" and "a.b" are names of two parameters; only the second one has a state.
TEST(OptimizerState, AParameterWhoseNameBeginsAnothersHasItsOwnState) {
  const torch::Tensor a = torch::ones({2}, torch::requires_grad()), b = torch::ones({3}, torch::requires_grad());
  StateDict parameters;
  parameters.insert("a", a);
  parameters.insert("a.b", b);
  optim::Adam optimizer({a, b}, optim::AdamOptions(0.1));
  b.sum().backward();
  optimizer.step();
  const StateDict state = optimizer_state_dict(optimizer, parameters);
  optim::Adam other({a, b}, optim::AdamOptions(0.2));
  load_optimizer_state_dict(other, parameters, state);
  EXPECT_EQ(other.state().size(), 1u);
  EXPECT_EQ(other.state().count(b.unsafeGetTensorImpl()), 1u);
  EXPECT_EQ(other.param_groups()[0].options().get_lr(), 0.1);
}

TEST(OptimizerState, MissingUnexpectedAndMismatchMessage) {
  nn::Linear net(2, 1);
  optim::SGD optimizer(net->parameters(), optim::SGDOptions(0.1).momentum(0.9));
  StateDict state = optimizer_state_dict(optimizer, net->named_parameters());
  state.erase("param_groups.bias.lr");
  state.insert("state.bias.momentum_buffer", torch::ones({3}));
  state.insert("state.gain.momentum_buffer", torch::ones({3}));
  EXPECT_EQ(
      error_text<c10::Error>([&] { load_optimizer_state_dict(optimizer, net->named_parameters(), state); }),
      "[cohort] load_optimizer_state_dict: the state does not fit the optimizer\n"
      "\tMissing key(s): \"param_groups.bias.lr\".\n"
      "\tUnexpected key(s): \"state.gain.momentum_buffer\".\n"
      "\tsize mismatch for state.bias.momentum_buffer: the checkpoint has shape [3], the parameter has shape [1].");
}

TEST(OptimizerState, ParameterWithoutNameMessage) {
  nn::Linear net(2, 1), other(2, 1);
  optim::SGD optimizer(net->parameters(), 0.1);
  EXPECT_EQ(error_text<c10::ValueError>([&] { optimizer_state_dict(optimizer, other->named_parameters()); }),
            "[cohort] parameter 0 of the optimizer's group 0 has no name among the 2 given\n"
            "  hint: pass named_parameters() of the module the optimizer was constructed with");
}

TEST(OptimizerState, GroupsThatDoNotFitMessage) {
  nn::Linear net(2, 1);
  optim::SGD apart({optim::OptimizerParamGroup({net->weight}), optim::OptimizerParamGroup({net->bias})},
                   optim::SGDOptions(0.1));
  apart.param_groups()[1].options().set_lr(0.5);
  const StateDict state = optimizer_state_dict(apart, net->named_parameters());
  optim::SGD together(net->parameters(), 0.1);
  EXPECT_EQ(error_text<c10::ValueError>([&] { load_optimizer_state_dict(together, net->named_parameters(), state); }),
            "[cohort] group 0 of the optimizer holds \"bias\" and \"weight\", which have different options in the "
            "checkpoint\n  hint: construct the optimizer with the parameter groups of the saved run");
}

TEST(OptimizerState, OtherOptimizersMessage) {
  nn::Linear net(2, 1);
  optim::LBFGS optimizer(net->parameters(), optim::LBFGSOptions());
  EXPECT_EQ(error_text<c10::NotImplementedError>([&] { optimizer_state_dict(optimizer, net->named_parameters()); }),
            "[cohort] the state of LBFGS does not belong to single parameters, so it cannot be saved by their names\n"
            "  hint: save optimizer_state_dict(optimizer), which is Python's layout");
}

struct TiedImpl : nn::Module {
  TiedImpl() {
    embedding = register_parameter("embedding", torch::randn({3, 2}));
    register_parameter("head", embedding);
  }
  at::Tensor embedding;
};
TORCH_MODULE(Tied);

TEST(SaveModel, StoresTiedWeightsOnce) {
  const test::TemporaryFolder folder;
  Tied from, to;
  save_model(*from, folder.file("model"), {{"note", "x"}});
  EXPECT_EQ(load_file(folder.file("model")).keys(), std::vector<std::string>{"embedding"});
  EXPECT_EQ(load_metadata(folder.file("model")), (FileMetadata{{"head", "embedding"}, {"note", "x"}}));
  load_model(*to, folder.file("model"));
  EXPECT_TRUE(to->embedding.equal(from->embedding));
}

}  // namespace
}  // namespace cohort::checkpoint
