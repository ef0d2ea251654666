// Against Python's numbers: tests/e2e/parallel/grad_scaler_test.py.
#include "cohort/parallel/optim/grad_scaler.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>

#include <limits>
#include <sstream>

#include "cohort/comm/pickle/pickle.h"
#include "cohort/parallel/optim/clip_grad.h"
#include "tests/parallel/optim/sharded_parameter.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"

namespace cohort::amp {
namespace {

using test::error_of;
using test::run_rank_threads;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

GradScaler cpu_scaler(double scale = 4) {
  return GradScaler({.device = at::kCPU, .init_scale = scale, .growth_interval = 2});
}

at::Tensor leaf(const at::Tensor& value) { return value.detach().clone().set_requires_grad(true); }

torch::optim::SGD sgd_of(const std::vector<at::Tensor>& parameters) { return torch::optim::SGD(parameters, 0.5); }

// What scale(loss).backward() leaves.
void set_scaled_grad(GradScaler& scaler, const at::Tensor& parameter, const at::Tensor& grad) {
  parameter.mutable_grad() = scaler.scale(grad).clone();
}

TEST(GradScaler, StepsWithTheUnscaledGradients) {
  auto scaler = cpu_scaler();
  const auto parameter = leaf(at::ones({2}));
  auto optimizer = sgd_of({parameter});
  const auto loss = (parameter * at::tensor({1.F, 2.F})).sum();
  scaler.scale(loss).backward();
  EXPECT_TRUE(at::equal(parameter.grad(), at::tensor({4.F, 8.F})));
  scaler.step(optimizer);
  EXPECT_TRUE(at::equal(parameter.grad(), at::tensor({1.F, 2.F})));
  EXPECT_TRUE(at::equal(parameter, at::tensor({0.5F, 0.F})));
}

TEST(GradScaler, SkipsAStepWithANonFiniteGradientAndBacksOff) {
  for (const float element : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    auto scaler = cpu_scaler();
    const auto first = leaf(at::ones({2}));
    const auto second = leaf(at::ones({2}, at::kDouble));
    auto optimizer = sgd_of({first, second});
    set_scaled_grad(scaler, first, at::ones({2}));
    set_scaled_grad(scaler, second, at::tensor({1.F, element}).to(at::kDouble));
    EXPECT_FALSE(scaler.step(optimizer).defined());
    EXPECT_FALSE(scaler.has_stepped());
    EXPECT_TRUE(at::equal(first, at::ones({2})));
    EXPECT_EQ(scaler.get_scale(), 4);
    scaler.update();
    EXPECT_EQ(scaler.get_scale(), 2);
    set_scaled_grad(scaler, second, at::ones({2}, at::kDouble));
    scaler.step(optimizer);
    EXPECT_TRUE(scaler.has_stepped());
  }
}

// A step that was broken off, as where memory did not suffice, does not count.
TEST(GradScaler, ALoadedStateBeginsAnew) {
  auto scaler = cpu_scaler();
  const auto parameter = leaf(at::ones({2}));
  auto optimizer = sgd_of({parameter});
  const auto state = scaler.state_dict();
  set_scaled_grad(scaler, parameter, at::full({2}, kInfinity));
  scaler.unscale_(optimizer);
  scaler.load_state_dict(state);
  set_scaled_grad(scaler, parameter, at::ones({2}));
  scaler.step(optimizer);
  EXPECT_TRUE(at::equal(parameter, at::full({2}, 0.5F)));
}

TEST(GradScaler, GrowsAfterTheIntervalWithoutOne) {
  auto scaler = cpu_scaler();
  const auto parameter = leaf(at::ones({2}));
  auto optimizer = sgd_of({parameter});
  std::vector<double> scales;
  for (const float element : {1.F, 1.F, 1.F, kInfinity, 1.F, 1.F, 1.F}) {
    set_scaled_grad(scaler, parameter, at::full({2}, element));
    scaler.step(optimizer);
    scaler.update();
    scales.push_back(scaler.get_scale());
  }
  EXPECT_EQ(scales, (std::vector<double>{4, 8, 8, 4, 4, 8, 8}));
}

TEST(GradScaler, OneOfTwoOptimizersSkipsAndTheScaleIsCommon) {
  const std::vector<at::Tensor> parameters{leaf(at::ones({1})), leaf(at::ones({1}))};
  auto of_first = sgd_of({parameters[0]});
  auto of_second = sgd_of({parameters[1]});
  for (const size_t bad : {0, 1}) {
    auto scaler = cpu_scaler();
    const auto before = parameters[bad].item<float>();
    set_scaled_grad(scaler, parameters[bad], at::full({1}, kInfinity));
    set_scaled_grad(scaler, parameters[1 - bad], at::ones({1}));
    scaler.step(of_first);
    scaler.step(of_second);
    scaler.update();
    EXPECT_EQ(parameters[bad].item<float>(), before);
    EXPECT_EQ(scaler.get_scale(), 2);
  }
  for (const auto& parameter : parameters) EXPECT_EQ(parameter.item<float>(), 0.5);
}

TEST(GradScaler, ScalesTensorsAndListsOfAnyDtype) {
  auto scaler = cpu_scaler();
  EXPECT_EQ(scaler.get_scale(), 4);
  const auto scaled = scaler.scale({at::ones({2}), at::ones({1}, at::kHalf), at::ones({1}, at::kDouble)});
  ASSERT_EQ(scaled.size(), 3);
  EXPECT_TRUE(at::equal(scaled[0], at::full({2}, 4.F)));
  EXPECT_EQ(scaled[1].scalar_type(), at::kHalf);
  EXPECT_EQ(scaled[2].item<double>(), 4);
  EXPECT_TRUE(scaler.scale(std::vector<at::Tensor>()).empty());
  EXPECT_EQ(scaler.scale(at::ones({}, at::kHalf)).scalar_type(), at::kFloat);  // as in Python: both have no dimension
}

TEST(GradScaler, UnscaledGradientsCanBeClippedBeforeTheStep) {
  auto scaler = cpu_scaler();
  const auto parameter = leaf(at::zeros({2}));
  auto optimizer = sgd_of({parameter});
  set_scaled_grad(scaler, parameter, at::tensor({3.F, 4.F}));
  scaler.unscale_(optimizer);
  EXPECT_EQ(nn::utils::clip_grad_norm_(parameter, 1).item<float>(), 5);
  scaler.step(optimizer);
  EXPECT_TRUE(at::allclose(parameter, at::tensor({-0.3F, -0.4F})));
}

TEST(GradScaler, SparseGradientsAreUnscaled) {
  auto scaler = cpu_scaler();
  const auto parameter = leaf(at::zeros({3}));
  auto optimizer = sgd_of({parameter});
  scaler.scale(at::ones({}));
  parameter.mutable_grad() = at::tensor({0.F, 8.F, 0.F}).to_sparse();
  scaler.step(optimizer);
  EXPECT_TRUE(at::equal(parameter, at::tensor({0.F, -1.F, 0.F})));
  scaler.update();
  parameter.mutable_grad() = at::tensor({0.F, kInfinity, 0.F}).to_sparse();
  scaler.step(optimizer);
  EXPECT_TRUE(at::equal(parameter, at::tensor({0.F, -1.F, 0.F})));
}

TEST(GradScaler, CallsInTheWrongOrderMessages) {
  auto scaler = cpu_scaler();
  const auto parameter = leaf(at::ones({1}));
  auto optimizer = sgd_of({parameter});
  const std::string unscaled =
      " but _scale is None.  This may indicate your script did not use scaler.scale(loss or outputs) earlier in the "
      "iteration.";
  EXPECT_EQ(error_of([&] { scaler.unscale_(optimizer); }), "Attempted unscale_" + unscaled);
  EXPECT_EQ(error_of([&] { scaler.step(optimizer); }), "Attempted step" + unscaled);
  EXPECT_EQ(error_of([&] { scaler.update(); }), "Attempted update" + unscaled);
  EXPECT_EQ(error_of([&] { scaler.update(2.0); }), "Attempted update" + unscaled);
  scaler.scale(at::ones({}));
  EXPECT_EQ(error_of([&] { scaler.update(); }), "No inf checks were recorded prior to update.");
  EXPECT_EQ(error_of([&] { scaler.step(optimizer); }), "No inf checks were recorded for this optimizer.");
  EXPECT_EQ(error_of([&] { scaler.step(optimizer, [] { return at::Tensor(); }); }),
            "Closure use is not currently supported if GradScaler is enabled.");
  scaler.update(4.0);
  set_scaled_grad(scaler, parameter, at::ones({1}));
  scaler.unscale_(optimizer);
  EXPECT_EQ(error_of([&] { scaler.unscale_(optimizer); }),
            "unscale_() has already been called on this optimizer since the last update().");
  scaler.step(optimizer);
  EXPECT_EQ(error_of([&] { scaler.unscale_(optimizer); }), "unscale_() is being called after step().");
  EXPECT_EQ(error_of([&] { scaler.step(optimizer); }), "step() has already been called since the last update().");
  EXPECT_EQ(parameter.item<float>(), 0.5);
  scaler.update();
  scaler.unscale_(optimizer);
}

TEST(GradScaler, HalfGradientsMessage) {
  auto scaler = cpu_scaler();
  const auto parameter = leaf(at::ones({1}));
  const auto half = leaf(at::ones({1}, at::kHalf));
  auto optimizer = sgd_of({parameter, half});
  set_scaled_grad(scaler, parameter, at::ones({1}));
  set_scaled_grad(scaler, half, at::ones({1}, at::kHalf));
  EXPECT_EQ(error_of([&] { scaler.unscale_(optimizer); }), "Attempting to unscale FP16 gradients.");
  EXPECT_EQ(parameter.grad().item<float>(), 4);
}

TEST(GradScaler, FactorsMessages) {
  EXPECT_EQ(error_of([] { GradScaler({.device = at::kCPU, .growth_factor = 1}); }), "The growth factor must be > 1.0.");
  EXPECT_EQ(error_of([] { GradScaler({.device = at::kCPU, .backoff_factor = 1}); }),
            "The backoff factor must be < 1.0.");
}

TEST(GradScaler, ANewScaleReplacesTheRule) {
  auto scaler = cpu_scaler();
  scaler.scale(at::ones({}));
  scaler.update(32.0);
  EXPECT_EQ(scaler.get_scale(), 32);
  auto value = at::full({1}, 7.F);
  scaler.update(value);
  value.fill_(9);
  EXPECT_EQ(scaler.get_scale(), 7);
  const std::string text =
      "new_scale should be a float or a 1-element torch.cuda.FloatTensor or torch.FloatTensor with "
      "requires_grad=False.";
  EXPECT_EQ(error_of([&] { scaler.update(at::ones({2})); }), text);
  EXPECT_EQ(error_of([&] { scaler.update(at::ones({1}, at::kMeta)); }), text);
  EXPECT_EQ(error_of([&] { scaler.update(leaf(at::ones({1}))); }), text);
  EXPECT_EQ(scaler.get_scale(), 7);
}

TEST(GradScaler, DisabledItIsNotThere) {
  GradScaler scaler({.device = at::kCPU, .growth_factor = 0, .enabled = false});
  const auto parameter = leaf(at::ones({1}));
  auto optimizer = sgd_of({parameter});
  EXPECT_FALSE(scaler.is_enabled());
  EXPECT_TRUE(scaler.scale(parameter).is_same(parameter));
  parameter.mutable_grad() = at::full({1}, kInfinity);
  scaler.unscale_(optimizer);
  const auto loss = scaler.step(optimizer, [] { return at::ones({}); });
  EXPECT_EQ(loss.item<float>(), 1);
  EXPECT_EQ(parameter.item<float>(), -kInfinity);
  scaler.update();
  EXPECT_EQ(scaler.get_scale(), 1);
  EXPECT_EQ(scaler.state_dict().size(), 0);
  scaler.load_state_dict(scaler.state_dict());
}

TEST(GradScaler, WithoutItsDeviceItWarnsAndDisablesItself) {
  testing::internal::CaptureStderr();
  EXPECT_FALSE(GradScaler().is_enabled());
  EXPECT_FALSE(GradScaler({.device = at::kCUDA}).is_enabled());
  const auto text = testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("GradScaler is enabled, but an accelerator is not available.  Disabling."), std::string::npos)
      << text;
  EXPECT_NE(text.find("GradScaler is enabled, but CUDA is not available.  Disabling."), std::string::npos) << text;
}

TEST(GradScaler, GoesOnFromItsState) {
  const auto growing = [](GradScaler& scaler) {
    const auto parameter = leaf(at::ones({1}));
    auto optimizer = sgd_of({parameter});
    set_scaled_grad(scaler, parameter, at::ones({1}));
    scaler.step(optimizer);
    scaler.update();
    return scaler.get_scale();
  };
  auto scaler = cpu_scaler();
  scaler.set_growth_factor(3);
  scaler.set_backoff_factor(0.25);
  scaler.set_growth_interval(3);
  EXPECT_EQ(growing(scaler), 4);
  EXPECT_EQ(growing(scaler), 4);
  const auto check = [&](GradScaler& other) {
    EXPECT_EQ(other.get_scale(), 4);
    EXPECT_EQ(other.get_growth_factor(), 3);
    EXPECT_EQ(other.get_backoff_factor(), 0.25);
    EXPECT_EQ(other.get_growth_interval(), 3);
    EXPECT_EQ(growing(other), 12);
  };
  auto fresh = cpu_scaler(100);
  fresh.load_state_dict(scaler.state_dict());
  check(fresh);
  auto used = cpu_scaler(100);
  growing(used);
  used.load_state_dict(comm::unpickle(comm::pickle(scaler.state_dict())));
  check(used);
  std::stringstream file;
  torch::save(scaler, file);
  auto loaded = cpu_scaler(100);
  torch::load(loaded, file);
  check(loaded);
}

TEST(GradScaler, StatesThatItRefusesMessages) {
  auto scaler = cpu_scaler();
  auto state = scaler.state_dict();
  const auto text = [&](const c10::IValue& value) { return error_of([&] { scaler.load_state_dict(value); }); };
  EXPECT_EQ(text(GradScaler({.enabled = false}).state_dict()),
            "The source state dict is empty, possibly because it was saved from a disabled instance of GradScaler.");
  EXPECT_EQ(text(3), "The source state dict is Int, not a dict.");
  state.insert_or_assign("scale", 64.0);
  state.insert_or_assign("growth_factor", "two");
  EXPECT_EQ(text(state), "[cohort] \"growth_factor\" of the source state dict is String, not a number.");
  EXPECT_EQ(state.erase("growth_factor"), 1);
  EXPECT_EQ(text(state), "[cohort] The source state dict has no entry \"growth_factor\".");
  EXPECT_EQ(scaler.get_scale(), 4);
}

class GradScalerOfShards : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Worlds, GradScalerOfShards, testing::Values(2, 3));

// One parameter's shards on all ranks, the other's on the first two; the last rank has no row of the second.
TEST_P(GradScalerOfShards, AllRanksSkipWhatOneOfThemCannotStep) {
  run_rank_threads(GetParam(), [](int, const Group& all) {
    const int size = all->getSize();
    test::ShardedParameter over_all(at::ones({size}), all);
    test::ShardedParameter of_the_first(at::ones({1, 2}), all);
    auto scaler = cpu_scaler();
    auto optimizer = sgd_of({over_all.shard(), of_the_first.shard()});
    double expected = 4;
    for (int bad = 0; bad <= size; ++bad) {  // last: none
      auto grad = at::ones({size});
      if (bad < size) grad[bad] = kInfinity;
      over_all.set_grad(scaler.scale(grad));
      of_the_first.set_grad(scaler.scale(at::ones({1, 2})));
      const auto before = over_all.shard().detach().clone();
      scaler.step(optimizer);
      scaler.update();
      if (bad < size) expected /= 2;
      REQUIRE(at::equal(over_all.shard(), before) == (bad < size));
      REQUIRE(scaler.get_scale() == expected);
    }
  });
}

TEST_P(GradScalerOfShards, RanksWithoutGradientsAgreeToo) {
  run_rank_threads(GetParam(), [](int rank, const Group& all) {
    test::ShardedParameter row(at::ones({1, 2}), all);
    auto scaler = cpu_scaler();
    auto optimizer = sgd_of({row.shard()});
    scaler.scale(at::ones({}));
    if (rank == 0) row.set_grad(at::full({1, 2}, kInfinity));
    scaler.unscale_(optimizer);
    scaler.step(optimizer);
    scaler.update();
    REQUIRE(scaler.get_scale() == 2);
  });
}

// As ShardedGradScaler does: a model that is float16 as a whole may be sharded.
TEST_P(GradScalerOfShards, TakeFloat16) {
  run_rank_threads(GetParam(), [](int, const Group& all) {
    test::ShardedParameter shards(at::ones({6}, at::kHalf), all);
    const auto whole = leaf(at::ones({2}, at::kHalf));
    for (const bool in_a_group : {false, true}) {
      GradScaler scaler({.device = at::kCPU, .init_scale = 4, .process_group = in_a_group ? all : Group()});
      scaler.scale(at::ones({}));
      shards.set_grad(at::full({6}, 2, at::kHalf));
      whole.mutable_grad() = at::full({2}, 2, at::kHalf);
      auto optimizer = sgd_of(in_a_group ? std::vector{whole} : std::vector{shards.shard()});
      scaler.unscale_(optimizer);
      const auto& gradient = in_a_group ? whole.grad() : shards.shard().grad();
      REQUIRE(gradient.equal(at::full_like(gradient, 0.5)));
    }
  });
}

TEST_P(GradScalerOfShards, SeveralGroups) {
  run_rank_threads(GetParam(), [](int rank, const Group& all) {
    using Lists = std::vector<std::vector<int>>;
    const auto pair = test::split_rank_threads(all, all->getSize() == 3 ? Lists{{0, 1}, {2}} : Lists{{0, 1}});
    test::ShardedParameter over_all(at::ones({6}), all);
    test::ShardedParameter of_the_pair(at::ones({2}), pair);
    for (const int bad : {0, 1}) {
      auto scaler = cpu_scaler();
      auto optimizer = sgd_of({of_the_pair.shard(), over_all.shard()});
      over_all.set_grad(scaler.scale(at::ones({6})));
      of_the_pair.set_grad(at::full({2}, rank == bad ? kInfinity : 1.F));
      scaler.step(optimizer);
      scaler.update();
      REQUIRE(scaler.get_scale() == 2);
    }
  });
}

TEST_P(GradScalerOfShards, AGivenGroupDecidesForFullParameters) {
  run_rank_threads(GetParam(), [](int rank, const Group& all) {
    const auto parameter = leaf(at::ones({1}));
    auto optimizer = sgd_of({parameter});
    for (const bool together : {false, true}) {
      GradScaler scaler({.device = at::kCPU, .init_scale = 4, .process_group = together ? all : Group()});
      set_scaled_grad(scaler, parameter, at::full({1}, rank == 1 ? kInfinity : 0.F));
      scaler.step(optimizer);
      scaler.update();
      REQUIRE(scaler.get_scale() == (together || rank == 1 ? 2 : 4));
    }
  });
}

}  // namespace
}  // namespace cohort::amp
