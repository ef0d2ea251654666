// Metrics of one process and of several ranks, with uneven batches and repeated samples.
#include "cohort/train/metrics/metric.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "cohort/data/samplers/distributed_sampler.h"
#include "cohort/train/metrics/accuracy.h"
#include "tests/data/error_text.h"
#include "tests/support/rank_processes.h"
#include "tests/support/require.h"

namespace cohort::train {
namespace {

using test::error_text;
using test::require;
using testing::ElementsAre;
using testing::Pair;

double only(Metric& metric) { return compute({{"", &metric}}).front().second; }

TEST(Metric, MeanCountsSamplesAndNotBatches) {
  Mean loss;
  loss.update(at::scalar_tensor(2.0), 3);
  loss.update(5.0, 1);
  EXPECT_EQ(only(loss), 11.0 / 4);
  loss.reset();
  EXPECT_TRUE(std::isnan(only(loss)));
  loss.update(at::scalar_tensor(2.0));
  EXPECT_EQ(only(loss), 2);
}

TEST(Metric, SumsAreOfDoublePrecision) {
  Mean mean;
  mean.update(at::scalar_tensor(1e8f), 1);
  for (int i = 0; i < 100; ++i) mean.update(at::scalar_tensor(1.0f), 1);
  EXPECT_EQ(only(mean), (1e8 + 100) / 101);
  EXPECT_EQ(mean.sums().scalar_type(), at::kDouble);
}

TEST(Metric, PerplexityIsOfAllTokens) {
  Perplexity perplexity;
  perplexity.update(1.0, 30);
  perplexity.update(4.0, 10);
  EXPECT_EQ(only(perplexity), std::exp(70.0 / 40));
}

TEST(Metric, PerplexityOfLogitsLeavesOutWhatItIsTold) {
  at::manual_seed(3);
  const auto logits = at::randn({2, 5, 7});
  auto target = at::randint(7, {2, 5}, at::kLong);
  target[0][1] = -100;
  target[1][4] = -100;
  Perplexity perplexity;
  perplexity.update(logits.slice(0, 0, 1), target.slice(0, 0, 1));
  perplexity.update(logits.slice(0, 1), target.slice(0, 1));
  const auto loss = at::cross_entropy_loss(logits.reshape({10, 7}), target.flatten());
  EXPECT_NEAR(only(perplexity), std::exp(loss.item<double>()), 1e-5);
  EXPECT_EQ(perplexity.sums()[1].item<double>(), 8);
  Perplexity without_ones({.ignore_index = 1});
  without_ones.update(logits[0], at::tensor({0, 1, 2, 1, 3}, at::kLong));
  EXPECT_EQ(without_ones.sums()[1].item<double>(), 3);
  EXPECT_EQ(error_text<c10::ValueError>([&] { perplexity.update(logits, target[0]); }),
            "[cohort] Perplexity: logits are [..., classes] and targets [...], but got [2, 5, 7] and [5]");
}

TEST(Metric, MeanOfAFunctionCountsSamples) {
  MeanOf error([](const at::Tensor& output, const at::Tensor& target) { return (output - target).abs(); });
  error.update(at::tensor({1.0, 2.0, 3.0}), at::tensor({2.0, 2.0, 5.0}));
  error.update(at::tensor({7.0}), at::tensor({2.0}));
  EXPECT_EQ(only(error), (1 + 0 + 2 + 5) / 4.0);
  EXPECT_EQ(error_text<c10::ValueError>([&] { error.update(at::scalar_tensor(1.0), at::scalar_tensor(1.0)); }),
            "[cohort] MeanOf: the first dimension of an output counts samples, but this output has no dimensions");
}

TEST(Metric, AccuracyOfSeveralClasses) {
  const auto output = at::tensor({0.1, 0.9, 0.5, 0.7, 0.2, 0.3, 0.1, 0.2, 0.6}, at::kFloat).view({3, 3});
  const auto target = at::tensor({1, 2, 2}, at::kLong);
  Accuracy top1, top2({.top_k = 2}), top9({.top_k = 9});
  for (auto* const metric : {&top1, &top2, &top9}) metric->update(output, target);
  EXPECT_THAT(compute({{"1", &top1}, {"2", &top2}, {"9", &top9}}),
              ElementsAre(Pair("1", 2.0 / 3), Pair("2", 1.0), Pair("9", 1.0)));
  top1.update(output, target, 1);
  EXPECT_EQ(only(top1), 3.0 / 4) << "one sample of the second batch is real";
  top1.update(output, target, 0);
  EXPECT_EQ(only(top1), 3.0 / 4);
}

TEST(Metric, AccuracyOfTextsWithPadding) {
  const auto output =
      at::tensor({0.9, 0.1, 0.9, 0.1, 0.1, 0.9, 0.1, 0.9}, at::kFloat).view({1, 2, 4});  // classes 0 1 0 1
  const auto target = at::tensor({0, 1, 1, -100}, at::kLong).view({1, 4});
  Accuracy accuracy({.ignore_index = -100}), all;
  accuracy.update(output, target);
  all.update(output, target);
  EXPECT_EQ(only(accuracy), 2.0 / 3);
  EXPECT_EQ(only(all), 2.0 / 4);
}

TEST(Metric, AccuracyOfTwoClasses) {
  const auto logits = at::tensor({-1.0, 2.0, 0.5, -0.5}, at::kFloat);
  const auto target = at::tensor({0.0, 1.0, 0.0, 1.0}, at::kFloat);
  Accuracy accuracy({.threshold = 0.0});
  accuracy.update(logits, target);
  EXPECT_EQ(only(accuracy), 0.5);
}

struct NoSums : Metric {
  NoSums() : Metric(0) {}
  double value(const std::vector<double>& /*sums*/) const override { return 0; }
};

TEST(Metric, ErrorsMessage) {
  Accuracy accuracy;
  EXPECT_EQ(error_text<c10::ValueError>([&] {
              accuracy.update(at::zeros({4, 3}), at::zeros({3}));
            }),
            "[cohort] Accuracy: outputs of sizes [4, 3] do not fit targets of sizes [3]\n"
            "  hint: give outputs [samples, classes, ...] and targets [samples, ...], or with a threshold both are "
            "[samples, ...]");
  EXPECT_EQ(error_text<c10::ValueError>([] { Accuracy({.top_k = 0}); }),
            "[cohort] Accuracy: top_k must be at least 1, not 0");
  EXPECT_EQ(error_text<c10::ValueError>([] { RealSamples(10, {.num_replicas = 2, .rank = 2}); }),
            "[cohort] RealSamples: needs a dataset size >= 0 and 0 <= rank < num_replicas, but got 10, 2 and 2");
  EXPECT_EQ(error_text<c10::ValueError>([] { NoSums metric; }),
            "[cohort] a Metric has at least one sum, but this one has 0");
  Mean mean;
  EXPECT_EQ(error_text<c10::ValueError>([&] { mean.update(at::zeros({2})); }),
            "[cohort] Metric::add: a number is a tensor of one element, but this one has 2");
  EXPECT_TRUE(std::isnan(only(mean)));
}

struct Largest : Metric {
  Largest() : Metric(2) {}
  void update(const at::Tensor& values) { add({values.sum(), (values > 2).sum()}); }
  double value(const std::vector<double>& sums) const override { return sums[0] * 100 + sums[1]; }
};

TEST(Metric, OfTheProgram) {
  Largest largest;
  largest.update(at::arange(5));
  EXPECT_EQ(only(largest), 1002);
}

// Every length and number of ranks: what DistributedSampler repeats is left out, and nothing else.
TEST(RealSamples, AreEachSampleOnce) {
  for (const int64_t size : {1, 2, 7, 8, 9, 24}) {
    for (const int64_t replicas : {1, 2, 3, 5, 11}) {
      std::vector<int64_t> real;
      for (int64_t rank = 0; rank < replicas; ++rank) {
        data::DistributedSampler sampler(size, {.num_replicas = replicas, .rank = rank, .shuffle = false});
        RealSamples counter(size, {.num_replicas = replicas, .rank = rank});
        const auto indices = sampler.indices();
        for (size_t begin = 0; begin < indices.size(); begin += 3) {
          const size_t end = std::min(indices.size(), begin + 3);
          const auto count = static_cast<size_t>(counter.take(static_cast<int64_t>(end - begin)));
          ASSERT_LE(count, end - begin);
          for (size_t i = begin; i < begin + count; ++i) real.push_back(indices[i]);
        }
      }
      std::sort(real.begin(), real.end());
      ASSERT_EQ(real.size(), static_cast<size_t>(size)) << replicas;
      for (int64_t i = 0; i < size; ++i) ASSERT_EQ(real[static_cast<size_t>(i)], i) << size << " of " << replicas;
    }
  }
}

TEST(RealSamples, OfMoreRanksThanNumbersCanBeAddedTo) {
  EXPECT_EQ(RealSamples(5, {.num_replicas = INT64_MAX, .rank = 3}).take(8), 1);
  EXPECT_EQ(RealSamples(5, {.num_replicas = INT64_MAX, .rank = 5}).take(8), 0);
}

// Rank 0 has two batches of 4 and 1, rank 1 one of 3, rank 2 none.
COHORT_WORKER(metrics_of_ranks) {
  init_process_group();
  const int rank = get_rank();
  Mean loss;
  Accuracy accuracy;
  const auto batch = [&](int64_t size, double mean) {
    loss.update(mean, size);
    accuracy.update(at::eye(4).narrow(0, 0, size), at::zeros({size}, at::kLong));  // the first is right
  };
  if (rank == 0) batch(4, 1.0), batch(1, 6.0);
  if (rank == 1) batch(3, 10.0);
  for (int i = 0; i < 2; ++i) {
    const auto values = compute({{"loss", &loss}, {"accuracy", &accuracy}});
    require(values[0].second == 40.0 / 8 && values[1].second == 3.0 / 8, "of all ranks, also the second time");
  }
  const auto local = compute({{"loss", &loss}}, {.is_local = true});
  require(rank != 1 || local[0].second == 10, "of this rank alone");
  destroy_process_group();
}

TEST(MetricRanks, UnevenBatchesCountBySamples) {
  test::run_workers("metrics_of_ranks", {.world_size = 3}).expect_success();
}

}  // namespace
}  // namespace cohort::train
