// The state of ZeRO: divided, put together, saved and loaded, also by other numbers of ranks.
#include <gtest/gtest.h>
#include <torch/serialize.h>

#include <sstream>

#include "cohort/checkpoint/optimizer/optimizer_state.h"
#include "tests/parallel/zero/training.h"
#include "tests/support/rank_threads.h"

namespace cohort {
namespace {

using checkpoint::StateDict;
using test::error_of;
using test::Parameters;
using test::run_rank_threads;

// The gradients do not depend on the number of ranks, so that runs of several numbers can be compared.
struct SteppedParameters {
  SteppedParameters() {
    for (const int64_t size : {5, 12, 3, 8, 1}) {
      auto generator = at::make_generator<at::CPUGeneratorImpl>(size);
      all.push_back(at::randn({size}, generator, at::kFloat).view({size}).set_requires_grad(true));
    }
    all[2] = all[2].detach().view({3, 1}).set_requires_grad(true);
    for (size_t i = 0; i < all.size(); ++i) named.insert("p" + std::to_string(i), all[i]);
  }
  test::ParamGroups groups(test::MakeOptimizer make) const { return test::two_groups(all, make); }

  void step(torch::optim::Optimizer& optimizer, int begin, int end) const {
    for (int step = begin; step < end; ++step) {
      // The last has none.
      for (size_t i = 0; i + 1 < all.size(); ++i) {
        auto generator = at::make_generator<at::CPUGeneratorImpl>(100 * step + i);
        all[i].mutable_grad() = at::randn(all[i].sizes(), generator, at::kFloat);
      }
      optimizer.step();
    }
  }

  Parameters all;
  StateDict named;
};

void require_same_state(const StateDict& ours, const StateDict& theirs) {
  REQUIRE(ours.keys() == theirs.keys());
  for (const auto& item : theirs) REQUIRE(at::equal(ours[item.key()], item.value()));
}

class ZeroStateOf : public testing::TestWithParam<test::OptimizerKind> {};

TEST_P(ZeroStateOf, ConsolidatedIsThatOfTheUndividedOptimizer) {
  run_rank_threads(3, [](int rank, const Group& group) {
    const SteppedParameters undivided;
    const SteppedParameters divided;
    const auto make = GetParam().make;
    const auto plain = make(undivided.groups(make));
    ZeroRedundancyOptimizer zero(divided.groups(make), make, {.process_group = group});
    undivided.step(*plain, 0, 4);
    divided.step(zero, 0, 4);
    zero.consolidate_state_dict(1);
    if (rank != 1) {
      REQUIRE_EQUAL(error_of([&] { (void)zero.state_dict(); }),
                    c10::str("Optimizer state has not been consolidated on this rank. Please call "
                             "`consolidate_state_dict(to=",
                             rank, ")` on all ranks beforehand if you meant to save the global state."));
      return;
    }
    for (auto& param_group : zero.param_groups()) param_group.options().set_lr(0.5);
    for (auto& param_group : plain->param_groups()) param_group.options().set_lr(0.5);
    require_same_state(checkpoint::optimizer_state_dict(zero.state_dict(), divided.named),
                       checkpoint::optimizer_state_dict(*plain, undivided.named));
    // By torch::save it is the undivided one's file, too.
    std::stringstream file;
    torch::save(zero, file);
    const auto reader = make(undivided.groups(make));
    torch::load(*reader, file);
    require_same_state(checkpoint::optimizer_state_dict(*reader, undivided.named),
                       checkpoint::optimizer_state_dict(*plain, undivided.named));
  });
}

TEST_P(ZeroStateOf, OnlyTheOwnPartExists) {
  run_rank_threads(3, [](int rank, const Group& group) {
    const SteppedParameters undivided;
    const SteppedParameters divided;
    const auto make = GetParam().make;
    const auto plain = make(undivided.groups(make));
    ZeroRedundancyOptimizer zero(divided.groups(make), make, {.process_group = group});
    undivided.step(*plain, 0, 1);
    divided.step(zero, 0, 1);
    REQUIRE(zero.state().empty());
    REQUIRE(test::num_state_bytes(*plain) >= 28 * 4);
    const auto own = at::full({1}, test::num_state_bytes(zero.optim()), at::kLong);
    const auto largest = own.clone();
    all_reduce(own, {.group = group});
    all_reduce(largest, {.op = ReduceOp::MAX, .group = group});
    REQUIRE(own.item<int64_t>() == test::num_state_bytes(*plain));
    REQUIRE(largest.item<int64_t>() < test::num_state_bytes(*plain) / 2);
    // Loading a whole state keeps no more.
    zero.load_state_dict(*plain);
    const auto loaded = at::full({1}, test::num_state_bytes(zero.optim()), at::kLong);
    all_reduce(loaded, {.group = group});
    REQUIRE(loaded.item<int64_t>() == test::num_state_bytes(*plain));
    (void)rank;
  });
}

// Three ranks train, save and end; two go on, then one.
TEST_P(ZeroStateOf, GoesOnWithAnotherNumberOfRanks) {
  const auto make = GetParam().make;
  const SteppedParameters uninterrupted;
  const auto plain = make(uninterrupted.groups(make));
  uninterrupted.step(*plain, 0, 9);

  StateDict weights;
  StateDict state;
  int begin = 0;
  for (const int world_size : {3, 2, 1}) {
    StateDict next_weights;
    StateDict next_state;
    run_rank_threads(world_size, [&](int rank, const Group& group) {
      const SteppedParameters training;
      ZeroRedundancyOptimizer zero(training.groups(make), make,
                                   {.process_group = group, .parameters_as_bucket_view = world_size == 2});
      if (begin > 0) {
        const at::NoGradGuard no_grad;
        for (const auto& item : training.named) item.value().copy_(weights[item.key()]);
        const auto whole = zero.full_optimizer();
        checkpoint::load_optimizer_state_dict(*whole, training.named, state);
        zero.load_state_dict(*whole);
      }
      training.step(zero, begin, begin + 3);
      zero.consolidate_state_dict();
      if (rank != 0) return;
      for (const auto& item : training.named) next_weights.insert(item.key(), item.value().detach().clone());
      next_state = checkpoint::optimizer_state_dict(zero.state_dict(), training.named);
    });
    weights = std::move(next_weights);
    state = std::move(next_state);
    begin += 3;
  }
  for (const auto& item : uninterrupted.named) EXPECT_TRUE(at::equal(weights[item.key()], item.value())) << item.key();
}

INSTANTIATE_TEST_SUITE_P(Optimizers, ZeroStateOf, testing::ValuesIn(test::kOptimizerKinds),
                         [](const auto& info) { return info.param.name; });

TEST(ZeroState, LoadsWithTorchLoadIntoPlacesNotNames) {
  run_rank_threads(2, [](int rank, const Group& group) {
    const SteppedParameters undivided;
    const SteppedParameters divided;
    const auto plain = test::make_adamw(undivided.groups(test::make_adamw));
    plain->param_groups()[1].options().set_lr(0.125);
    undivided.step(*plain, 0, 3);
    std::stringstream file;
    torch::save(*plain, file);
    ZeroRedundancyOptimizer zero(divided.groups(test::make_adamw), test::make_adamw, {.process_group = group});
    divided.step(zero, 10, 12);
    torch::load(zero, file);
    REQUIRE(zero.param_groups()[1].options().get_lr() == 0.125);
    {
      const at::NoGradGuard no_grad;
      for (size_t i = 0; i < undivided.all.size(); ++i) divided.all[i].copy_(undivided.all[i]);
    }
    undivided.step(*plain, 3, 6);
    divided.step(zero, 3, 6);
    test::require_same(divided.all, undivided.all);
    (void)rank;
  });
}

// A loaded state is the loader's own.
TEST(ZeroState, LoadingCopies) {
  run_rank_threads(1, [](int, const Group& group) {
    const SteppedParameters undivided;
    const SteppedParameters divided;
    const auto plain = test::make_sgd(undivided.groups(test::make_sgd));
    undivided.step(*plain, 0, 1);
    const auto before = checkpoint::optimizer_state_dict(*plain, undivided.named)["state.p0.momentum_buffer"].clone();
    ZeroRedundancyOptimizer zero(divided.groups(test::make_sgd), test::make_sgd, {.process_group = group});
    zero.load_state_dict(*plain);
    divided.step(zero, 1, 2);
    const auto after = checkpoint::optimizer_state_dict(*plain, undivided.named)["state.p0.momentum_buffer"];
    REQUIRE(at::equal(after, before));
  });
}

TEST(ZeroState, WhatHasNoneWhenLoadedHasNoneAfterwards) {
  run_rank_threads(2, [](int, const Group& group) {
    for (const auto& [name, make] : test::kOptimizerKinds) {
      const SteppedParameters divided;
      ZeroRedundancyOptimizer zero(divided.groups(make), make, {.process_group = group});
      divided.step(zero, 0, 1);
      REQUIRE(!zero.optim().state().empty());
      const auto whole = zero.full_optimizer();
      REQUIRE(whole->state().empty());
      zero.load_state_dict(*whole);
      REQUIRE(zero.optim().state().empty());
    }
  });
}

TEST(ZeroState, StatesThatDoNotFitMessage) {
  run_rank_threads(1, [](int, const Group& group) {
    const SteppedParameters divided;
    ZeroRedundancyOptimizer zero(divided.groups(test::make_sgd), test::make_sgd, {.process_group = group});
    REQUIRE_EQUAL(error_of([&] { zero.load_state_dict(*test::make_adam(divided.groups(test::make_adam))); }),
                  "[cohort] load_state_dict takes an optimizer of the wrapped kind over all parameters, such as "
                  "state_dict() or full_optimizer() returns");
    REQUIRE_EQUAL(error_of([&] { zero.load_state_dict(*test::make_sgd({divided.all})); }),
                  "loaded state dict has a different number of parameter groups");
    REQUIRE_EQUAL(error_of([&] {
                    zero.load_state_dict(*test::make_sgd({divided.all, Parameters()}));
                  }),
                  "loaded state dict contains a parameter group that doesn't match the size of optimizer's group");
    std::stringstream file;
    REQUIRE_EQUAL(
        error_of([&] { torch::save(zero, file); }),
        "Optimizer state has not been consolidated on this rank. Please call `consolidate_state_dict(to=0)` on "
        "all ranks beforehand if you meant to save the global state.");
    zero.consolidate_state_dict();
    (void)zero.state_dict();
    zero.add_param_group(Parameters{torch::zeros({2}, at::requires_grad())});
    REQUIRE(error_of([&] { (void)zero.state_dict(); }) != "(no error)");
  });
}

}  // namespace
}  // namespace cohort
