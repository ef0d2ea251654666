// PowerSGD's state and its algebra. Numbers are compared with Python's hook in tests/e2e/parallel/ddp_test.py.
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/serialize.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <sstream>

#include "cohort/parallel/ddp/hooks/orthogonalize.h"
#include "cohort/parallel/ddp/hooks/power_sgd_hook.h"
#include "cohort/parallel/ddp/reducer.h"
#include "tests/support/inline_engine.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"

namespace cohort::ddp {
namespace {

using test::error_of;
using test::run_rank_threads;
using PowerSGDHook = CommHookFuture (*)(const std::shared_ptr<PowerSGDState>&, GradBucket&);

at::Tensor random_of(uint64_t seed, at::IntArrayRef sizes) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randn(sizes, generator, at::kFloat);
}

// A matrix, a cube, a vector and a scalar, in two buckets.
struct Shapes {
  std::vector<at::Tensor> tensors{torch::zeros({16, 12}, at::requires_grad()), torch::zeros({7}, at::requires_grad()),
                                  torch::zeros({8, 3, 5}, at::requires_grad()), torch::zeros({}, at::requires_grad())};

  /// Gradients of matrix rank 1, which differ by step and rank.
  at::Tensor gradient(size_t i, int step, int rank) const {
    const auto& tensor = tensors[i];
    const uint64_t seed = 100 * i + 10 * static_cast<uint64_t>(step);
    if (tensor.dim() < 2) return random_of(seed + rank, tensor.sizes());
    const auto rows = tensor.size(0);
    const auto left = random_of(seed + 5 + rank, {rows, 1});
    return left.mm(random_of(seed + 7, {1, tensor.numel() / rows})).view(tensor.sizes());
  }
  at::Tensor mean(size_t i, int step) const { return (gradient(i, step, 0) + gradient(i, step, 1)) / 2; }

  void step(Reducer& reducer, int number, int rank) const {
    for (const auto& tensor : tensors) tensor.mutable_grad().reset();
    reducer.prepare();
    auto loss = torch::zeros({});
    for (size_t i = 0; i < tensors.size(); ++i) loss = loss + (tensors[i] * gradient(i, number, rank)).sum();
    loss.backward();
  }
};

double distance(const at::Tensor& a, const at::Tensor& b) { return (a - b).abs().max().item<double>(); }

PowerSGDOptions from_iteration_two(const Group& group, int64_t rank) {
  PowerSGDOptions options;
  options.process_group = group;
  options.matrix_approximation_rank = rank;
  options.start_power_sgd_iter = 2;
  options.min_compression_rate = 1;
  options.orthogonalization_epsilon = 1e-8;
  return options;
}

ReducerOptions in_two_buckets(const Group& group, Engine engine) {
  ReducerOptions options;
  options.process_group = group;
  options.bucket_cap_mb = 0.0004;
  options.engine = engine;
  return options;
}

class PowerSGDOfEngine : public testing::TestWithParam<Engine> {};

// Two ranks' matrices of rank 1 with a common right factor have a mean of rank 1.
TEST_P(PowerSGDOfEngine, MatricesOfLowRankTravelWithoutLoss) {
  run_rank_threads(2, [](int rank, const Group& group) {
    for (const bool batched_shapes : {false, true}) {
      const Shapes shapes;
      Reducer reducer(shapes.tensors, in_two_buckets(group, GetParam()));
      auto options = from_iteration_two(group, 1);
      options.batch_tensors_with_same_shape = batched_shapes;
      const auto state = std::make_shared<PowerSGDState>(options);
      reducer.register_comm_hook(state, power_sgd_hook);
      for (int step = 0; step < 5; ++step) {
        shapes.step(reducer, step, rank);
        for (size_t i = 0; i < shapes.tensors.size(); ++i) {
          REQUIRE(distance(shapes.tensors[i].grad(), shapes.mean(i, step)) < 1e-4);
        }
      }
      REQUIRE(reducer.buckets().size() == (GetParam() == kInline ? 1 : 2));
      REQUIRE(state->iter() == 5);
      const auto stats = state->compression_stats();
      REQUIRE(stats.numel_before_compression == 3 * (192 + 7 + 120 + 1));
      REQUIRE(stats.numel_after_compression == 3 * (28 + 7 + 23 + 1));
      REQUIRE(stats.compress_rate == 320.0 / 59);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Engines, PowerSGDOfEngine, testing::Values(Engine::kCohort, Engine::kC10d, kInline));

// What is lost in one step comes in later ones: the sums of true and of compressed gradients stay together.
TEST(PowerSGD, ErrorFeedbackMakesUpForWhatWasLost) {
  run_rank_threads(2, [](int rank, const Group& group) {
    const auto sum_of_errors = [&](PowerSGDHook hook, bool feedback) {
      const std::vector<at::Tensor> weight{torch::zeros({8, 8}, at::requires_grad())};
      Reducer reducer(weight, {.process_group = group});
      auto options = from_iteration_two(group, 1);
      options.use_error_feedback = feedback;
      reducer.register_comm_hook(std::make_shared<PowerSGDState>(options), hook);
      const auto constant = random_of(3, {8, 8});
      auto error = torch::zeros({8, 8});
      for (int step = 0; step < 60; ++step) {
        weight[0].mutable_grad().reset();
        reducer.prepare();
        (weight[0] * constant * (rank + 1)).sum().backward();
        error += weight[0].grad() - constant * 1.5;
      }
      return error.norm().item<double>() / constant.norm().item<double>();
    };
    for (const PowerSGDHook hook : {power_sgd_hook, batched_power_sgd_hook}) {
      const auto with = sum_of_errors(hook, true);
      const auto without = sum_of_errors(hook, false);
      REQUIRE(with < 0.3 * without);
    }
  });
}

// The random matrices come from the state's generator, and not from the program's.
TEST(PowerSGD, RanksEndWithTheSameGradientsAndTheProgramDrawsTheSameNumbers) {
  torch::manual_seed(7);
  const auto next = torch::rand({1});
  torch::manual_seed(7);
  std::vector<std::vector<at::Tensor>> gradients(2);
  run_rank_threads(2, [&](int rank, const Group& group) {
    const Shapes shapes;
    Reducer reducer(shapes.tensors, in_two_buckets(group, Engine::kCohort));
    auto options = from_iteration_two(group, 2);
    options.warm_start = false;
    reducer.register_comm_hook(std::make_shared<PowerSGDState>(options), power_sgd_hook);
    for (int step = 0; step < 5; ++step) {
      shapes.step(reducer, step, rank);
      for (const auto& tensor : shapes.tensors) gradients[rank].push_back(tensor.grad().clone());
    }
  });
  for (size_t i = 0; i < gradients[0].size(); ++i) EXPECT_TRUE(at::equal(gradients[0][i], gradients[1][i])) << i;
  EXPECT_TRUE(at::equal(torch::rand({1}), next));
}

// A job that saves its state and one that goes on from there have the bits of a job without a break.
TEST(PowerSGD, StateSavedAndRestoredGoesOnBitByBit) {
  run_rank_threads(2, [](int rank, const Group& group) {
    for (const auto& [hook, warm_start] : std::vector<std::pair<PowerSGDHook, bool>>{
             {power_sgd_hook, true}, {power_sgd_hook, false}, {batched_power_sgd_hook, true}}) {
      const auto run = [&, hook = hook](const std::shared_ptr<PowerSGDState>& state, int begin, int end,
                                        int first_recorded) {
        const Shapes shapes;
        Reducer reducer(shapes.tensors, in_two_buckets(group, Engine::kCohort));
        shapes.step(reducer, 0, rank);  // buckets are rearranged before the hook sees them
        reducer.prepare_forward();
        reducer.register_comm_hook(state, hook);
        std::vector<at::Tensor> gradients;
        for (int step = begin; step < end; ++step) {
          shapes.step(reducer, step, rank);
          if (step < first_recorded) continue;
          for (const auto& tensor : shapes.tensors) gradients.push_back(tensor.grad().clone());
        }
        return gradients;
      };
      const auto fresh = [&, warm_start = warm_start] {
        auto options = from_iteration_two(group, 2);
        options.warm_start = warm_start;
        options.random_seed = 3;
        return std::make_shared<PowerSGDState>(options);
      };
      const auto expected = run(fresh(), 0, 8, 4);
      const auto first = fresh();
      run(first, 0, 4, 4);
      std::stringstream stream;
      torch::save(*first, stream);
      const auto restored = std::make_shared<PowerSGDState>(PowerSGDOptions{.process_group = group});
      torch::load(*restored, stream);
      REQUIRE(restored->options().matrix_approximation_rank == 2 && restored->iter() == 4);
      REQUIRE(restored->options().process_group == group);
      const auto actual = run(restored, 4, 8, 4);
      REQUIRE(restored->compression_stats().numel_before_compression == 6 * 320);
      for (size_t i = 0; i < expected.size(); ++i) REQUIRE(at::equal(actual[i], expected[i]));
    }
  });
}

TEST(PowerSGD, ArchiveOfSomethingElseMessage) {
  std::stringstream stream;
  torch::save(torch::ones({2}), stream);
  PowerSGDState state;
  EXPECT_EQ(error_of([&] { torch::load(state, stream); }),
            "[cohort] the archive has no state of PowerSGD: \"matrix_approximation_rank\" is missing");
  EXPECT_EQ(state.options().start_power_sgd_iter, 1000);
}

TEST(PowerSGD, TooEarlyAStartMessage) {
  const std::string text =
      "Expect `start_powerSGD_iter` > 1 if `use_error_feedback` or `warm_start` is enabled, because PowerSGD can only "
      "be "
      "applied after the first two iterations in DDP.";
  EXPECT_EQ(error_of([] { PowerSGDState({.start_power_sgd_iter = 1}); }), text);
  EXPECT_EQ(error_of([] { PowerSGDState({.start_power_sgd_iter = 1, .use_error_feedback = false}); }), text);
  PowerSGDState({.start_power_sgd_iter = 0, .use_error_feedback = false, .warm_start = false});
}

TEST(Orthogonalize, ColumnsAreOrthonormalAndSpanTheSame) {
  for (const int64_t columns : {1, 2, 5}) {
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      const auto given = random_of(1, {3, 9, columns}).to(dtype);
      const auto result = given.clone();
      orthogonalize(result, 0);
      const auto q = result.to(at::kDouble);
      const double tolerance = dtype == at::kFloat ? 1e-5 : 0.05;
      EXPECT_LT(distance(q.transpose(1, 2).bmm(q), at::eye(columns, at::kDouble).expand({3, -1, -1})), tolerance);
      const auto projected = q.bmm(q.transpose(1, 2).bmm(given.to(at::kDouble)));
      EXPECT_LT(distance(projected, given.to(at::kDouble)), 4 * tolerance);
    }
  }
}

TEST(Orthogonalize, EpsilonKeepsColumnsOfZerosFinite) {
  const auto zeros = torch::zeros({1, 4, 2});
  orthogonalize(zeros, 1e-8);
  EXPECT_TRUE(at::equal(zeros, torch::zeros({1, 4, 2})));
  orthogonalize(zeros, 0);
  EXPECT_TRUE(zeros.isnan().all().item<bool>());
}

TEST(Orthogonalize, MoreColumnsThanRowsMessage) {
  EXPECT_EQ(error_of([] {
              orthogonalize(torch::ones({1, 2, 3}), 0);
            }),
            "[cohort] orthogonalize needs a batch of matrices with no more columns than rows, got sizes [1, 2, 3]");
}

}  // namespace
}  // namespace cohort::ddp
