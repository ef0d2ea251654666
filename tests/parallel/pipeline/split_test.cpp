#include "cohort/parallel/pipeline/split.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/functional.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <chrono>
#include <thread>

#include "tests/parallel/tensor/numbers.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"

namespace cohort {
namespace {

using Counts = std::vector<int>;

torch::nn::Sequential three_layers() {
  return torch::nn::Sequential(torch::nn::Linear(4, 64), torch::nn::BatchNorm1d(64), torch::nn::Linear(64, 64));
}

TEST(SplitSequential, PartsKeepLayersAndNames) {
  auto net = three_layers();
  net->eval();
  const auto parts = pipeline::split_sequential(net, {1, 2});
  const at::Tensor x = test::drawn({5, 4}, 1);
  EXPECT_TRUE(at::equal(torch::nn::Sequential(parts[1])->forward(torch::nn::Sequential(parts[0])->forward(x)),
                        net->forward(x)));
  std::vector<std::string> names;
  for (const auto& part : parts) {
    for (const auto& item : part->named_parameters()) {
      names.push_back(item.key());
      EXPECT_TRUE(item.value().is_same(net->named_parameters()[item.key()]));
    }
  }
  EXPECT_EQ(names, net->named_parameters().keys());
  EXPECT_EQ(parts[1]->named_buffers().keys(), net->named_buffers().keys());
  EXPECT_FALSE(net[1]->is_training());
}

TEST(SplitSequential, ByParameters) {
  auto net = three_layers();
  EXPECT_EQ(pipeline::parameter_costs(net), (std::vector<double>{320, 128, 64 * 65}));
  EXPECT_EQ(pipeline::split_sequential(net, 2)[0]->size(), 2u);
  EXPECT_EQ(test::error_of([&] { pipeline::split_sequential(net, 4); }),
            "[cohort] pipeline: 3 layers cannot be split over 4 stages\n"
            "  hint: use fewer stages: each needs at least one layer");
  EXPECT_EQ(test::error_of([&] {
              pipeline::split_sequential(net, Counts{1, 1});
            }),
            "[cohort] pipeline: the counts [1, 1] do not fit 3 layers\n"
            "  hint: give a positive number for each stage; their sum is the number of layers");
}

TEST(SplitSequential, ByTime) {
  const auto slow = [](const at::Tensor& input) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return input * 2;
  };
  torch::nn::Sequential net(torch::nn::Linear(8, 8), torch::nn::BatchNorm1d(8), torch::nn::Functional(slow),
                            torch::nn::Linear(8, 4));
  const at::Tensor mean = net->named_buffers()["1.running_mean"].clone();
  const auto costs = pipeline::measured_costs(net, test::drawn({64, 8}, 1), {.num_repeats = 10});
  ASSERT_EQ(costs.size(), 4u);
  for (const double cost : costs) EXPECT_GT(cost, 0);
  EXPECT_GE(costs[2], 0.02);
  EXPECT_TRUE(at::equal(net->named_buffers()["1.running_mean"], mean));
  for (const at::Tensor& parameter : net->parameters()) EXPECT_FALSE(parameter.grad().defined());
  EXPECT_EQ(test::error_of([&] { pipeline::measured_costs(net, mean, {.num_repeats = 0}); }),
            "[cohort] measured_costs: num_repeats must be positive, got 0");
}

TEST(SplitSequential, RanksHaveTheFirstOnesTimes) {
  std::vector<std::vector<double>> costs(2);
  test::run_rank_threads(2, [&](int rank, const Group& group) {
    costs[static_cast<size_t>(rank)] =
        pipeline::measured_costs(three_layers(), at::ones({3, 4}), {.num_repeats = 1, .group = group});
  });
  EXPECT_EQ(costs[0].size(), 3u);
  EXPECT_EQ(costs[0], costs[1]);
}

TEST(SplitSequential, AllRanksLearnThatNothingCouldBeMeasuredMessage) {
  test::run_rank_threads(2, [&](int rank, const Group& group) {
    torch::nn::Sequential net(torch::nn::BatchNorm1d(4), torch::nn::Linear(8, 4));
    const at::Tensor mean = net->named_buffers()["0.running_mean"].clone();
    const std::string error = test::error_of([&] {
      pipeline::measured_costs(net, at::ones({3, 4}), {.num_repeats = 1, .group = group});
    });
    const std::string text = "mat1 and mat2 shapes cannot be multiplied (3x4 and 8x4)";
    test::require_equal(
        error, (rank == 0 ? "" : "[cohort] measured_costs: rank 0 of the group, which measures, failed: ") + text);
    test::require(at::equal(net->named_buffers()["0.running_mean"], mean), "buffers as they were");
  });
}

TEST(SplitBlocks, OfAnyType) {
  EXPECT_EQ(pipeline::split_blocks(std::vector<std::string>{"a", "b", "c"}, {2, 1}),
            (std::vector<std::vector<std::string>>{{"a", "b"}, {"c"}}));
}

}  // namespace
}  // namespace cohort
