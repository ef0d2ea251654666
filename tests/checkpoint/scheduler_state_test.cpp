// States of schedulers, and of random numbers. That Python's schedulers take them: tests/e2e/train/lr_schedulers_test.py.
#include "cohort/checkpoint/optimizer/scheduler_state.h"

#include <ATen/ops/rand.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/schedulers/reduce_on_plateau_scheduler.h>
#include <torch/optim/schedulers/step_lr.h>
#include <torch/optim/sgd.h>

#include <vector>

#include "cohort/checkpoint/optimizer/python_values.h"
#include "cohort/checkpoint/state/rng_state.h"
#include "tests/data/error_text.h"

namespace cohort::checkpoint {
namespace {

namespace lib = torch::optim;
using detail::entry_of;
using test::error_text;

struct SchedulerState : testing::Test {
  double rate() { return optimizer.param_groups()[0].options().get_lr(); }
  lib::SGD optimizer{{torch::ones({2}, torch::requires_grad())}, 1.0};
};

TEST_F(SchedulerState, StepLrGoesOn) {
  lib::StepLR scheduler(optimizer, 3, 0.5);
  for (int i = 0; i < 5; ++i) scheduler.step();
  const auto state = scheduler_state_dict(scheduler, optimizer);
  const double before = rate();
  std::vector<double> expected, got;
  for (int i = 0; i < 5; ++i) scheduler.step(), expected.push_back(rate());
  optimizer.param_groups()[0].options().set_lr(before);
  lib::StepLR other(optimizer, 3, 0.5);
  load_scheduler_state_dict(other, state);
  for (int i = 0; i < 5; ++i) other.step(), got.push_back(rate());
  EXPECT_EQ(got, expected);
  EXPECT_NE(expected.front(), expected.back());
  EXPECT_EQ(entry_of(state, "step_size").toInt(), 3);
  EXPECT_EQ(entry_of(state, "_last_lr").toListRef()[0].toDouble(), before);
}

TEST_F(SchedulerState, OtherSettingsMessage) {
  lib::StepLR scheduler(optimizer, 3, 0.5), other(optimizer, 2, 0.5);
  EXPECT_EQ(
      error_text<c10::ValueError>(
          [&] { load_scheduler_state_dict(other, scheduler_state_dict(scheduler, optimizer)); }),
      "[cohort] load_scheduler_state_dict: the state is of a StepLR with step_size=3, but this one has step_size=2\n"
      "  hint: construct the scheduler with the settings of the run that was saved: LibTorch cannot change them later");
  auto nothing = detail::empty_dict();
  nothing.insert("lr", 0.5);
  EXPECT_EQ(error_text<c10::ValueError>([&] { load_scheduler_state_dict(other, nothing); }),
            "[cohort] load_scheduler_state_dict: the state has no \"last_epoch\", but \"lr\"\n"
            "  hint: load a state of scheduler.state_dict()");
}

TEST_F(SchedulerState, ReduceLROnPlateauGoesOn) {
  using Plateau = lib::ReduceLROnPlateauScheduler;
  Plateau scheduler(optimizer, Plateau::min, 0.5, 2);
  for (const float metric : {3.0f, 2.0f, 2.5f, 2.5f}) scheduler.step(metric);
  const auto state = scheduler_state_dict(scheduler, optimizer);
  EXPECT_EQ(entry_of(state, "best").toDouble(), 2);
  EXPECT_EQ(entry_of(state, "num_bad_epochs").toInt(), 2);
  EXPECT_EQ(entry_of(state, "factor").toDouble(), 0.5);
  EXPECT_EQ(rate(), 1.0);
  Plateau other(optimizer, Plateau::max, 0.1, 7);
  load_scheduler_state_dict(other, state);
  other.step(2.5);
  EXPECT_EQ(rate(), 0.5) << "the third bad epoch, with the settings of the other";
}

TEST_F(SchedulerState, ReduceLROnPlateauIsUnchangedIfRefused) {
  using Plateau = lib::ReduceLROnPlateauScheduler;
  Plateau scheduler(optimizer);
  const auto text = [&](const char* key, c10::IValue value) {
    auto state = scheduler_state_dict(scheduler, optimizer).toGenericDict();
    state.insert_or_assign("patience", int64_t{99});
    state.insert_or_assign(key, std::move(value));
    return error_text<c10::ValueError>([&] { load_scheduler_state_dict(scheduler, state); });
  };
  EXPECT_EQ(text("mode", std::string("mean")),
            "[cohort] load_scheduler_state_dict: \"mode\" of the state is 'mean', neither 'min' nor 'max'");
  EXPECT_EQ(text("best", std::string("x")),
            "[cohort] load_scheduler_state_dict: \"best\" of the state is 'x', not a number");
  EXPECT_EQ(
      text("last_epoch", 1e300),
      "[cohort] load_scheduler_state_dict: \"last_epoch\" of the state is 1e+300, not a whole number in the range of "
      "a count");
  c10::impl::GenericList words(c10::AnyType::get());
  words.push_back(std::string("low"));
  EXPECT_EQ(text("min_lrs", words),
            "[cohort] load_scheduler_state_dict: \"min_lrs\" of the state is 'low', not a number");
  EXPECT_EQ(text("min_lrs", c10::List<double>()),
            "[cohort] load_scheduler_state_dict: \"min_lrs\" of the state are of 0 parameter groups, but the optimizer "
            "has 1");
  EXPECT_EQ(entry_of(scheduler_state_dict(scheduler, optimizer), "patience").toInt(), 10);
}

TEST(RngState, AllOfThemComeBack) {
  const auto states = all_rng_states();
  const auto first = at::rand({4});
  at::rand({7});
  set_all_rng_states(states);
  EXPECT_TRUE(at::rand({4}).equal(first));
}

TEST(RngState, SomethingElseMessage) {
  auto states = detail::empty_dict();
  states.insert("rng", at::rand({4}));
  EXPECT_EQ(error_text<c10::ValueError>([&] { set_all_rng_states(states); }),
            "[cohort] states of random numbers have no tensor \"cpu\", but \"rng\"\n"
            "  hint: give it what all_rng_states() has given");
}

}  // namespace
}  // namespace cohort::checkpoint
