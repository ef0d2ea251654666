// What schedulers refuse, and what they share. Their numbers: tests/e2e/train/lr_schedulers_test.py.
#include "cohort/train/optim/lr_scheduler.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/schedulers/step_lr.h>
#include <torch/optim/sgd.h>

#include <memory>
#include <string>
#include <vector>

#include "cohort/checkpoint/optimizer/optimizer_state.h"
#include "cohort/checkpoint/optimizer/python_values.h"
#include "cohort/checkpoint/optimizer/scheduler_state.h"
#include "cohort/comm/group/process_group.h"
#include "cohort/parallel/optim/fused_optimizers.h"
#include "cohort/parallel/zero/zero_redundancy_optimizer.h"
#include "tests/data/error_text.h"
#include "tests/support/rank_processes.h"
#include "tests/support/require.h"

namespace cohort::optim {
namespace {

namespace lib = torch::optim;
using checkpoint::detail::entry_of;
using test::error_text;
using test::require;
using testing::ElementsAre;

std::vector<at::Tensor> a_parameter() { return {at::ones({2}, at::requires_grad())}; }

double rate_of(const lib::Optimizer& optimizer) { return optimizer.param_groups()[0].options().get_lr(); }

struct Schedulers : testing::Test {
  std::vector<double> rates(LRScheduler& scheduler, int num_steps) {
    std::vector<double> result;
    for (int i = 0; i < num_steps; ++i) scheduler.step(), result.push_back(rate_of(optimizer));
    return result;
  }
  template <class Make>
  std::string refusal(Make make) {
    return error_text<c10::ValueError>([&] { make(optimizer); });
  }
  // Of a state that has `value` in the place of `key`; the scheduler stays as it was.
  std::string refusal_of(LRScheduler& scheduler, const char* key, const c10::IValue& value) {
    const auto before = scheduler.state_dict();
    auto state = scheduler.state_dict().toGenericDict();
    state.insert_or_assign("last_epoch", 99);
    state.insert_or_assign(key, value);
    const auto text = error_text<c10::ValueError>([&] { scheduler.load_state_dict(state); });
    EXPECT_EQ(scheduler.last_epoch(), entry_of(before, "last_epoch").toInt());
    return text;
  }

  lib::SGD optimizer{a_parameter(), lib::SGDOptions(1.0).momentum(0.9)};
};

TEST_F(Schedulers, SettingsThatCannotWorkMessages) {
  using O = lib::Optimizer;
  EXPECT_EQ(refusal([](O& o) { StepLR(o, 0); }), "[cohort] StepLR: step_size must be at least 1, not 0");
  EXPECT_EQ(refusal([](O& o) { CosineAnnealingLR(o, 0); }),
            "[cohort] CosineAnnealingLR: t_max must be at least 1, not 0");
  EXPECT_EQ(refusal([](O& o) { CosineAnnealingWarmRestarts(o, 0); }), "Expected positive integer T_0, but got 0");
  EXPECT_EQ(refusal([](O& o) { CosineAnnealingWarmRestarts(o, 1, 0); }), "Expected integer T_mult >= 1, but got 0");
  EXPECT_EQ(refusal([](O& o) { ConstantLR(o, 1.5); }),
            "Constant multiplicative factor expected to be between 0 and 1.");
  EXPECT_EQ(refusal([](O& o) { LinearLR(o, 0.0); }),
            "Starting multiplicative factor expected to be greater than 0 and less or equal to 1.");
  EXPECT_EQ(refusal([](O& o) { LinearLR(o, 0.5, -1); }),
            "Ending multiplicative factor expected to be between 0 and 1.");
  EXPECT_EQ(refusal([](O& o) { LambdaLR(o, std::vector<RateFactor>(3, [](int64_t) { return 1.0; })); }),
            "Expected 1 lr_lambdas, but got 3");
  EXPECT_EQ(refusal([](O& o) { ReduceLROnPlateau(o, {.factor = 1}); }), "Factor should be < 1.0.");
  EXPECT_EQ(refusal([](O& o) { OneCycleLR(o, 0.1, {}); }),
            "You must define either total_steps OR (epochs AND steps_per_epoch)");
  EXPECT_EQ(refusal([](O& o) { OneCycleLR(o, 0.1, {.total_steps = 0}); }),
            "Expected positive integer total_steps, but got 0");
  EXPECT_EQ(refusal([](O& o) { OneCycleLR(o, 0.1, {.total_steps = 9, .pct_start = 1.5}); }),
            "Expected float between 0 and 1 pct_start, but got 1.5");
  EXPECT_EQ(refusal([](O& o) {
              OneCycleLR(o, {0.1, 0.2}, {.total_steps = 9});
            }),
            "max_lr must have the same length as optimizer.param_groups. max_lr has 2 values, param_groups has 1.");
  EXPECT_EQ(refusal([](O& o) { CyclicLR(o, 0.1, 0.2, {.step_size_up = 0}); }),
            "[cohort] CyclicLR: step_size_up and step_size_down must be at least 1");
  EXPECT_EQ(refusal([](O& o) { SWALR(o, 0.1, -1); }), "anneal_epochs must be equal or greater than 0, got -1");
  EXPECT_EQ(rate_of(optimizer), 1.0);
}

TEST_F(Schedulers, OptimizersWithoutMomentumMessage) {
  lib::Adagrad adagrad(a_parameter(), 0.5);
  const std::string text = "optimizer must support momentum or beta1 with `cycle_momentum` option enabled";
  EXPECT_EQ(error_text<c10::ValueError>([&] { OneCycleLR(adagrad, 0.1, {.total_steps = 9}); }), text);
  EXPECT_EQ(error_text<c10::ValueError>([&] { CyclicLR(adagrad, 0.1, 0.2); }), text);
  EXPECT_EQ(rate_of(adagrad), 0.5);
  lib::SGD empty(std::vector<lib::OptimizerParamGroup>{}, lib::SGDOptions(0.5));
  EXPECT_EQ(error_text<c10::ValueError>([&] { CyclicLR(empty, 0.1, 0.2); }), "optimizer got an empty parameter list");
  OneCycleLR without(adagrad, 0.1, {.total_steps = 9, .cycle_momentum = false});
}

TEST_F(Schedulers, WhereThereIsNoRateMessages) {
  OneCycleLR scheduler(optimizer, 0.1, {.total_steps = 2});
  scheduler.step(), scheduler.step();
  EXPECT_EQ(error_text<c10::ValueError>([&] { scheduler.step(); }),
            "Tried to step 3 times. The specified number of total steps is 2");
  EXPECT_EQ(refusal([](lib::Optimizer& o) { OneCycleLR(o, 0.1, {.total_steps = 10, .pct_start = 0.1}); }),
            "[cohort] OneCycleLR::step: with these settings a part of the schedule has no steps, so no rate is defined "
            "at step 0");
  // As many as there are numbers for: the rate is that of the beginning.
  OneCycleLR endless(optimizer, 0.1, {.epochs = INT64_MAX, .steps_per_epoch = 2});
  endless.step();
  EXPECT_NEAR(rate_of(optimizer), 0.004, 1e-12);
  CosineAnnealingWarmRestarts restarts(optimizer, 4);
  EXPECT_EQ(error_text<c10::ValueError>([&] { restarts.step(-0.5); }), "Expected non-negative epoch, but got -0.5");
  ReduceLROnPlateau plateau(optimizer);
  LRScheduler& any = plateau;
  EXPECT_EQ(error_text<c10::TypeError>([&] { any.step(); }),
            "[cohort] ReduceLROnPlateau::step needs the metric: step(validation_loss)");
}

TEST_F(Schedulers, AGroupThatCameLaterMessage) {
  StepLR scheduler(optimizer, 3);
  optimizer.add_param_group(lib::OptimizerParamGroup(a_parameter()));
  EXPECT_EQ(error_text<c10::ValueError>([&] {
              LambdaLR other(optimizer, [](int64_t) { return 1.0; });
              optimizer.add_param_group(lib::OptimizerParamGroup(a_parameter()));
              other.step();
            }),
            "[cohort] LambdaLR::step: the schedule is for 2 parameter groups, but the optimizer has 3\n"
            "  hint: construct schedulers after the last add_param_group()");
}

TEST_F(Schedulers, CombinationsThatCannotWorkMessages) {
  lib::SGD other(a_parameter(), 0.1);
  const auto step = std::make_shared<StepLR>(optimizer, 3);
  const auto plateau = std::make_shared<ReduceLROnPlateau>(optimizer);
  const auto chained = std::make_shared<ChainedScheduler>(SchedulerList{step});
  const auto of_other = std::make_shared<StepLR>(other, 3);
  const auto text = [&](SchedulerList list, std::vector<int64_t> milestones) {
    return error_text<c10::ValueError>([&] { SequentialLR(optimizer, list, milestones); });
  };
  EXPECT_EQ(text({}, {}), "SequentialLR expects at least one scheduler, but got no scheduler.");
  EXPECT_EQ(text({step, step}, {}),
            "Sequential Schedulers expects number of schedulers provided to be one more than the number of milestone "
            "points, but got number of schedulers 2 and the number of milestones to be equal to 0");
  EXPECT_EQ(text({step, plateau}, {3}),
            "SequentialLR does not support `ReduceLROnPlateau` scheduler as it requires additional kwargs to be "
            "specified when calling `step`, but got one at index 1 in the given schedulers sequence.");
  EXPECT_EQ(text({step, of_other}, {3}),
            "[cohort] SequentialLR: the StepLR at index 1 is of another optimizer than the others");
  EXPECT_EQ(text({step, nullptr}, {3}), "[cohort] SequentialLR: the scheduler at index 1 is null");
  EXPECT_EQ(text({step, chained}, {3}),
            "[cohort] SequentialLR: a ChainedScheduler can only be the first scheduler, but is at index 1\n"
            "  hint: list its schedulers here, with milestones of their own");
  EXPECT_EQ(error_text<c10::ValueError>([] { ChainedScheduler({}); }),
            "ChainedScheduler expects at least one scheduler to be chained, but got no scheduler.");
  EXPECT_EQ(error_text<c10::ValueError>([&] {
              ChainedScheduler({step, of_other});
            }),
            "[cohort] ChainedScheduler: the StepLR at index 1 is of another optimizer than the others");
}

TEST_F(Schedulers, StatesThatDoNotFitMessages) {
  const std::string prefix = "[cohort] StepLR::load_state_dict: ";
  StepLR step(optimizer, 3);
  CosineAnnealingLR cosine(optimizer, 9);
  EXPECT_EQ(error_text<c10::ValueError>([&] { step.load_state_dict(3); }),
            prefix + "the state of a scheduler is a dict, not 3");
  EXPECT_EQ(error_text<c10::ValueError>([&] { step.load_state_dict(checkpoint::detail::empty_dict()); }),
            prefix +
                "the state has no \"_last_lr\", but nothing\n"
                "  hint: load a state of scheduler.state_dict()");
  EXPECT_EQ(error_text<c10::ValueError>([&] { step.load_state_dict(cosine.state_dict()); }),
            prefix +
                "the state has \"T_max\", which this StepLR does not have\n"
                "  hint: construct the same kind of scheduler as in the saved run, with the same settings");
  EXPECT_EQ(refusal_of(step, "gamma", "x"), prefix + "\"gamma\" of the state is 'x', not a number");
  EXPECT_EQ(refusal_of(step, "last_epoch", 1.5), prefix + "\"last_epoch\" of the state is 1.5, not a whole number");
  EXPECT_EQ(refusal_of(step, "last_epoch", 1e300),
            prefix + "\"last_epoch\" of the state is 1e+300, not a whole number");
  EXPECT_EQ(refusal_of(step, "step_size", 0), prefix + "\"step_size\" of the state is 0, less than 1");
  EXPECT_EQ(refusal_of(step, "base_lrs", c10::List<double>({0.1, 0.2})),
            prefix +
                "\"base_lrs\" of the state is of 2 parameter groups, but the optimizer has 1\n"
                "  hint: construct the optimizer with the parameter groups of the saved run");
  EXPECT_EQ(refusal_of(step, "_last_lr", "x"), prefix + "\"_last_lr\" of the state is 'x', not a list")
      << "the last entry, after those that fit";
  EXPECT_EQ(refusal_of(step, "base_lrs", 3), prefix + "\"base_lrs\" of the state is 3, not a list");
  EXPECT_EQ(refusal_of(cosine, "T_max", 0),
            "[cohort] CosineAnnealingLR::load_state_dict: \"T_max\" of the state is 0, less than 1");
  EXPECT_EQ(rates(step, 3), (std::vector<double>{1.0, 1.0, 0.1})) << "as if nothing had been loaded";
}

TEST_F(Schedulers, StatesOfOthersThatDoNotFitMessages) {
  CosineAnnealingWarmRestarts restarts(optimizer, 4);
  const std::string of_restarts = "[cohort] CosineAnnealingWarmRestarts::load_state_dict: ";
  EXPECT_EQ(refusal_of(restarts, "T_i", 0.0),
            of_restarts + "\"T_i\" of the state is 0, which is not a finite number of at least 1");
  MultiStepLR multi(optimizer, {3});
  EXPECT_EQ(refusal_of(multi, "milestones", 3),
            "[cohort] MultiStepLR::load_state_dict: \"milestones\" of the state is 3, not a dict");
  ReduceLROnPlateau plateau(optimizer);
  EXPECT_EQ(refusal_of(plateau, "mode", "mean"),
            "[cohort] ReduceLROnPlateau::load_state_dict: \"mode\" of the state is 'mean', not one of 'min', 'max'");
  OneCycleLR cycle(optimizer, 0.1, {.total_steps = 9});
  const std::string of_cycle = "[cohort] OneCycleLR::load_state_dict: \"_schedule_phases\" of the state ";
  c10::impl::GenericList phases(c10::AnyType::get());
  EXPECT_EQ(refusal_of(cycle, "_schedule_phases", phases), of_cycle + "has no phase");
  auto phase = checkpoint::detail::empty_dict();
  phase.insert("end_step", 3);
  phase.insert("start_lr", "/etc/passwd");
  phases.push_back(phase);
  EXPECT_EQ(refusal_of(cycle, "_schedule_phases", phases), of_cycle + "has a phase with start_lr='/etc/passwd'");
  const auto step = std::make_shared<StepLR>(optimizer, 3), other = std::make_shared<StepLR>(optimizer, 2);
  SequentialLR sequential(optimizer, {step, other}, {5});
  const std::string of_sequential = "[cohort] SequentialLR::load_state_dict: ";
  EXPECT_EQ(refusal_of(sequential, "_schedulers", c10::impl::GenericList(c10::AnyType::get())),
            of_sequential + "\"_schedulers\" of the state is of 0 schedulers, not of 2");
  EXPECT_EQ(refusal_of(sequential, "_milestones", c10::List<int64_t>()),
            of_sequential + "\"_milestones\" of the state is of 1 schedulers, not of 2");
}

// A state is read as a whole or not at all, also in schedulers of schedulers.
TEST_F(Schedulers, APartThatDoesNotFitLeavesAllAsTheyWere) {
  const auto step = std::make_shared<StepLR>(optimizer, 3), other = std::make_shared<StepLR>(optimizer, 2);
  ChainedScheduler chained({step, other});
  chained.step();
  auto state = chained.state_dict().toGenericDict();
  chained.step();
  auto broken = state.at("_schedulers").toList().get(1).toGenericDict();
  broken.insert_or_assign("gamma", "x");
  EXPECT_EQ(error_text<c10::ValueError>([&] { chained.load_state_dict(state); }),
            "[cohort] StepLR::load_state_dict: \"gamma\" of the state is 'x', not a number");
  EXPECT_EQ(step->last_epoch(), 2);
  EXPECT_EQ(chained.last_epoch(), 2);
}

TEST_F(Schedulers, LaterOnesKnowTheInitialRate) {
  const LinearLR warm_up(optimizer, 0.1);
  EXPECT_EQ(rate_of(optimizer), 0.1);
  LambdaLR scheduler(optimizer, [](int64_t epoch) { return epoch == 0 ? 0.5 : 0.25; });
  EXPECT_EQ(rate_of(optimizer), 0.5) << "of 1.0, which the optimizer had first";
  EXPECT_THAT(scheduler.get_last_lr(), ElementsAre(0.5));
  scheduler.step();
  EXPECT_THAT(scheduler.get_last_lr(), ElementsAre(0.25));
  EXPECT_EQ(scheduler.last_epoch(), 1);
}

// Another optimizer in the same place has nothing of it.
TEST_F(Schedulers, InitialRatesEndWithTheLastScheduler) {
  { const LinearLR warm_up(optimizer, 0.1); }
  const LambdaLR scheduler(optimizer, [](int64_t) { return 1.0; });
  EXPECT_EQ(rate_of(optimizer), 0.1);
}

TEST_F(Schedulers, SettingsOfTheStateCount) {
  StepLR scheduler(optimizer, 2, 0.5), other(optimizer, 30);
  scheduler.step();
  other.load_state_dict(scheduler.state_dict());
  EXPECT_THAT(rates(other, 3), ElementsAre(0.5, 0.5, 0.25));
}

TEST_F(Schedulers, AStateOfLibTorchsStepLrGoesOn) {
  lib::StepLR theirs(optimizer, 3, 0.5);
  for (int i = 0; i < 5; ++i) theirs.step();
  StepLR ours(optimizer, 7);
  ours.load_state_dict(checkpoint::scheduler_state_dict(theirs, optimizer));
  EXPECT_EQ(ours.last_epoch(), 4);
  EXPECT_THAT(rates(ours, 2), ElementsAre(0.5, 0.25)) << "at 6, as in Python";
}

std::vector<at::Tensor> two_parameters() {
  return {at::full({3}, 2.0).set_requires_grad(true), at::full({4}, 3.0).set_requires_grad(true)};
}

void take_steps(lib::Optimizer& optimizer, const std::vector<at::Tensor>& parameters) {
  OneCycleLR scheduler(optimizer, 0.5, {.total_steps = 10});
  for (int i = 0; i < 5; ++i) {
    for (const auto& parameter : parameters) parameter.mutable_grad() = at::full_like(parameter, 1.0 + i);
    optimizer.step();
    scheduler.step();
  }
}

// The rates and the kind's beta1 reach what each rank owns.
COHORT_WORKER(one_cycle_of_zero) {
  init_process_group();
  const auto divided = two_parameters(), whole = two_parameters();
  auto zero = ZeroRedundancyOptimizer::make<AdamW>(divided, lib::AdamWOptions(0.1));
  AdamW plain(whole, lib::AdamWOptions(0.1));
  take_steps(zero, divided);
  take_steps(plain, whole);
  for (size_t i = 0; i < whole.size(); ++i) require(at::equal(divided[i], whole[i]), "the steps of an undivided one");
  const OneCycleLR scheduler(zero, 0.5, {.total_steps = 10});
  zero.consolidate_state_dict();
  if (get_rank() == 0) {
    const auto state = checkpoint::optimizer_state_dict(zero);
    const auto first = entry_of(state, "param_groups").toListRef()[0];
    require(entry_of(first, "max_lr").toDouble() == 0.5, "what the schedule keeps in the state dict");
    require(entry_of(first, "betas").toTupleRef().elements()[0].toDouble() == 0.95, "its beta1, too");
  }
  destroy_process_group();
}

TEST(SchedulersOfRanks, ZeroRedundancyOptimizer) {
  test::run_workers("one_cycle_of_zero", {.world_size = 2}).expect_success();
}

}  // namespace
}  // namespace cohort::optim
