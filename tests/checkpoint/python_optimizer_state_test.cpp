// States of optimizers in Python's layout: what tests/e2e/checkpoint/going_on_test.py does not say, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/sgd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cohort/checkpoint/optimizer/optimizer_state.h"
#include "cohort/checkpoint/optimizer/python_values.h"
#include "cohort/comm/pickle/pickle.h"
#include "cohort/parallel/optim/fused_optimizers.h"
#include "cohort/parallel/optim/optimizer_kind.h"
#include "tests/data/error_text.h"

namespace cohort::checkpoint {
namespace {

namespace nn = torch::nn;
using detail::entry_of;
using test::error_text;
using testing::ElementsAre;
using Value = c10::IValue;

std::vector<std::string> keys_in(const Value& dict) {
  std::vector<std::string> keys;
  for (const auto& entry : dict.toGenericDict()) keys.push_back(detail::key_text(entry.key()));
  return keys;
}

Value group_in(const Value& state, size_t index) { return entry_of(state, "param_groups").toListRef()[index]; }
Value state_in(const Value& state, const std::string& id) { return entry_of(entry_of(state, "state"), id); }

// A dict of its own, as a file gives it.
Value copy_of(const Value& state) { return comm::unpickle(comm::pickle(state)); }

// `state` with another option in its first group.
Value with_option(const Value& state, const std::string& key, Value value) {
  Value copy = copy_of(state);
  group_in(copy, 0).toGenericDict().insert_or_assign(key, std::move(value));
  return copy;
}

struct PythonOptimizerState : testing::Test {
  PythonOptimizerState() {
    net->forward(torch::ones({1, 2})).sum().backward();
    adam.step();
    state = optimizer_state_dict(adam);
  }
  std::string refusal(const Value& given) {
    const auto text = error_text<c10::ValueError>([&] { load_optimizer_state_dict(fresh, given); });
    EXPECT_TRUE(fresh.state().empty()) << "nothing is changed";
    EXPECT_EQ(fresh.param_groups()[0].options().get_lr(), 0.5);
    return text;
  }

  nn::Linear net{2, 3};
  torch::optim::Adam adam{net->parameters(), torch::optim::AdamOptions(0.25)};
  torch::optim::Adam fresh{net->parameters(), torch::optim::AdamOptions(0.5)};
  Value state;
};

TEST_F(PythonOptimizerState, HasPythonsKeysInPythonsOrder) {
  EXPECT_THAT(keys_in(state), ElementsAre("state", "param_groups"));
  EXPECT_THAT(keys_in(group_in(state, 0)),
              ElementsAre("lr", "betas", "eps", "weight_decay", "amsgrad", "maximize", "foreach", "capturable",
                          "differentiable", "fused", "decoupled_weight_decay", "params"));
  EXPECT_THAT(keys_in(state_in(state, "0")), ElementsAre("step", "exp_avg", "exp_avg_sq"));
  const at::Tensor step = entry_of(state_in(state, "1"), "step").toTensor();
  EXPECT_EQ(step.scalar_type(), at::kFloat);
  EXPECT_EQ(step.dim(), 0);
  EXPECT_EQ(step.item<float>(), 1);
}

TEST_F(PythonOptimizerState, SaysWhetherPythonWouldComputeTheSameWithFused) {
  EXPECT_TRUE(entry_of(group_in(state, 0), "fused").isNone());
  const cohort::optim::Adam ours(net->parameters());
  EXPECT_TRUE(entry_of(group_in(optimizer_state_dict(ours), 0), "fused").toBool());
}

TEST_F(PythonOptimizerState, ComesBackAsACopy) {
  load_optimizer_state_dict(fresh, copy_of(state));
  EXPECT_EQ(fresh.param_groups()[0].options().get_lr(), 0.25);
  load_optimizer_state_dict(fresh, state);
  const auto average = [&](torch::optim::Adam& optimizer) {
    return static_cast<torch::optim::AdamParamState&>(*optimizer.state().at(net->weight.unsafeGetTensorImpl()))
        .exp_avg();
  };
  EXPECT_TRUE(average(fresh).equal(average(adam)));
  EXPECT_NE(average(fresh).data_ptr(), average(adam).data_ptr());
}

TEST_F(PythonOptimizerState, AcceptsWhatChangesNothing) {
  for (const auto& [key, value] : std::vector<std::pair<std::string, Value>>{{"foreach", true},
                                                                             {"fused", true},
                                                                             {"capturable", true},
                                                                             {"maximize", Value()},
                                                                             {"initial_lr", 0.7},
                                                                             {"something", false},
                                                                             {"amsgrad", int64_t{0}},
                                                                             {"lr", torch::tensor(0.125)}}) {
    load_optimizer_state_dict(fresh, with_option(state, key, value));
    EXPECT_EQ(fresh.param_groups()[0].options().get_lr(), key == "lr" ? 0.125 : 0.25) << key;
  }
}

TEST_F(PythonOptimizerState, StatesBecomeWhatTheirParametersAre) {
  nn::Linear other(2, 3);
  other->to(at::kDouble);
  torch::optim::Adam of_doubles(other->parameters());
  load_optimizer_state_dict(of_doubles, state);
  const auto loaded = optimizer_state_dict(of_doubles);
  EXPECT_EQ(entry_of(state_in(loaded, "0"), "exp_avg").toTensor().scalar_type(), at::kDouble);
  EXPECT_EQ(entry_of(state_in(loaded, "0"), "step").toTensor().scalar_type(), at::kFloat);
}

TEST_F(PythonOptimizerState, OptionsThatCannotBeHonoredMessages) {
  EXPECT_EQ(refusal(with_option(state, "maximize", true)),
            "[cohort] parameter group 0 of the checkpoint has maximize=True, but this Adam only knows maximize=False\n"
            "  hint: go on with it in Python, or construct another optimizer and leave its state out");
  EXPECT_EQ(refusal(with_option(state, "decoupled_weight_decay", true)),
            "[cohort] parameter group 0 of the checkpoint has decoupled_weight_decay=True, but this Adam only knows "
            "decoupled_weight_decay=False\n  hint: use AdamW, which is Adam with decoupled_weight_decay=True");
  EXPECT_EQ(
      refusal(with_option(state, "rho", 0.9)),
      "[cohort] load_optimizer_state_dict: parameter group 0 of the checkpoint has rho=0.9, which Adam does not have\n"
      "  hint: the checkpoint is of another kind of optimizer");
  EXPECT_EQ(refusal(with_option(state, "betas", 0.9)),
            "[cohort] \"betas\" in parameter group 0 of the checkpoint is 0.9, not two numbers");
}

TEST_F(PythonOptimizerState, OtherGroupsMessages) {
  torch::optim::Adam two(
      {torch::optim::OptimizerParamGroup({net->weight}), torch::optim::OptimizerParamGroup({net->bias})});
  EXPECT_EQ(refusal(optimizer_state_dict(two)), "loaded state dict has a different number of parameter groups");
  torch::optim::Adam one({net->weight});
  EXPECT_EQ(refusal(optimizer_state_dict(one)),
            "loaded state dict contains a parameter group that doesn't match the size of optimizer's group");
}

TEST_F(PythonOptimizerState, OtherStatesMessages) {
  Value given = copy_of(state);
  state_in(given, "1").toGenericDict().insert_or_assign("exp_avg", torch::ones({4}));
  EXPECT_EQ(
      refusal(given),
      "[cohort] size mismatch for \"exp_avg\" in the state of parameter 1: the checkpoint has shape [4], the parameter "
      "has shape [3]\n  hint: construct model and optimizer as in the run that was saved");
  given = copy_of(state);
  (void)state_in(given, "1").toGenericDict().erase("exp_avg_sq");
  EXPECT_EQ(
      refusal(given),
      "[cohort] the state of parameter 1 of the checkpoint has no \"exp_avg_sq\", which Adam needs with the options of "
      "its group\n  hint: the checkpoint is of another kind of optimizer, or was made with other options");
  given = copy_of(state);
  state_in(given, "1").toGenericDict().insert_or_assign("step", torch::tensor(1e300, at::kDouble));
  EXPECT_EQ(refusal(given),
            "[cohort] \"step\" in the state of parameter 1 of the checkpoint is tensor(1e+300), not a whole number");
  given = copy_of(state);
  state_in(given, "1").toGenericDict().insert_or_assign("prev", torch::ones({3}));
  EXPECT_EQ(refusal(given),
            "[cohort] load_optimizer_state_dict: the state of parameter 1 has \"prev\", which Adam does not have\n"
            "  hint: the checkpoint is of another kind of optimizer");
  given = copy_of(state);
  entry_of(given, "state").toGenericDict().insert_or_assign(int64_t{7}, state_in(given, "1"));
  EXPECT_EQ(
      refusal(given),
      "[cohort] load_optimizer_state_dict: the checkpoint has a state of parameter 7, which none of its groups has");
}

TEST_F(PythonOptimizerState, SomethingElseMessages) {
  EXPECT_EQ(refusal(Value(3.5)),
            "[cohort] load_optimizer_state_dict: the state dict of an optimizer is a dict, not 3.5");
  auto file = detail::empty_dict();
  file.insert("optimizer", state);
  EXPECT_EQ(refusal(file),
            "[cohort] load_optimizer_state_dict: the state dict of an optimizer has a dict \"state\" and a list "
            "\"param_groups\", but this one has \"optimizer\"\n"
            "  hint: give it what optimizer.state_dict() has given, which files often hold under \"optimizer\"");
  torch::optim::SGD sgd(net->parameters(), 0.1);
  EXPECT_EQ(refusal(optimizer_state_dict(sgd)),
            "[cohort] load_optimizer_state_dict: parameter group 0 of the checkpoint has no \"betas\"\n"
            "  hint: the checkpoint is of another kind of optimizer than this Adam");
}

// Python's SGD may hold a buffer of None; LibTorch would compute with it.
TEST_F(PythonOptimizerState, AMomentumBufferOfNoneIsNoState) {
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  sgd.step();
  Value given = copy_of(optimizer_state_dict(sgd));
  state_in(given, "0").toGenericDict().insert_or_assign("momentum_buffer", Value());
  load_optimizer_state_dict(sgd, given);
  EXPECT_EQ(sgd.state().size(), 1u);
  sgd.step();
  EXPECT_EQ(sgd.state().size(), 2u);
}

struct LionOptions : torch::optim::OptimizerCloneableOptions<LionOptions> {
  double get_lr() const override { return lr; }
  void set_lr(double value) override { lr = value; }
  double lr = 0.1;
  bool is_gentle = true;
};
struct LionState : torch::optim::OptimizerCloneableParamState<LionState> {
  at::Tensor average;
  double strength = 0;
};
struct Lion : torch::optim::Optimizer {
  explicit Lion(std::vector<at::Tensor> parameters)
      : Optimizer({torch::optim::OptimizerParamGroup(std::move(parameters))}, std::make_unique<LionOptions>()) {}
  at::Tensor step(LossClosure) override { return {}; }
};

TEST_F(PythonOptimizerState, OfAnOptimizerOfTheProgram) {
  Lion lion(net->parameters());
  EXPECT_EQ(
      error_text<c10::NotImplementedError>([&] { optimizer_state_dict(lion); }),
      "[cohort] the state of this kind of optimizer is not known; known are SGD, Adam, AdamW, Adagrad, "
      "RMSprop and LBFGS\n  hint: describe the state with cohort::optim::register_optimizer_kind, or store it with "
      "torch::save(optimizer, path)");
  cohort::optim::register_optimizer_kind(cohort::optim::make_optimizer_kind<Lion, LionOptions, LionState>(
      "Lion",
      [](LionOptions& options) {
        return cohort::optim::Fields{{"lr", &options.lr}, {"gentle", &options.is_gentle}};
      },
      [](LionState& state) {
        return cohort::optim::Fields{{"average", &state.average}, {"strength", &state.strength}};
      }));
  auto own = std::make_unique<LionState>();
  own->average = torch::full({3}, 2.0);
  own->strength = 0.25;
  lion.state()[net->bias.unsafeGetTensorImpl()] = std::move(own);
  lion.param_groups()[0].options().set_lr(0.3);
  Lion other(net->parameters());
  load_optimizer_state_dict(other, copy_of(optimizer_state_dict(lion)));
  EXPECT_EQ(other.param_groups()[0].options().get_lr(), 0.3);
  const auto& loaded = static_cast<LionState&>(*other.state().at(net->bias.unsafeGetTensorImpl()));
  EXPECT_TRUE(loaded.average.equal(torch::full({3}, 2.0)));
  EXPECT_EQ(loaded.strength, 0.25);
  const StateDict by_name = optimizer_state_dict(lion, net->named_parameters());
  EXPECT_THAT(by_name.keys(), ElementsAre("param_groups.weight.lr", "param_groups.weight.gentle", "state.bias.average",
                                          "state.bias.strength", "param_groups.bias.lr", "param_groups.bias.gentle"));
}

}  // namespace
}  // namespace cohort::checkpoint
