#include "cohort/pipeline/balance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace cohort::pipeline {
namespace {

using Counts = std::vector<int>;

TEST(Balance, SlowestStageIsAsFastAsItCanBe) {
  EXPECT_EQ(*plan_counts({1, 1, 1, 1}, 2), (Counts{2, 2}));
  EXPECT_EQ(*plan_counts({9, 1, 1, 1}, 2), (Counts{1, 3}));
  EXPECT_EQ(*plan_counts({1, 1, 1, 9}, 3), (Counts{1, 2, 1}));
  EXPECT_EQ(*plan_counts({3, 1, 4}, 3), (Counts{1, 1, 1}));
  EXPECT_EQ(*plan_counts({3, 1, 4}, 1), (Counts{3}));
}

TEST(Balance, OthersAreAsEvenAsTheyCanBe) {
  EXPECT_EQ(*plan_counts({10, 1, 1, 1, 1}, 3), (Counts{1, 2, 2}));
  EXPECT_EQ(*plan_counts({1, 1, 1, 1, 1, 1, 10}, 4), (Counts{2, 2, 2, 1}));
  EXPECT_EQ(*plan_counts({0, 0, 5, 0}, 2), (Counts{1, 3}));
}

// All ways to cut `costs`: the least of their largest sums.
double least_maximum(const std::vector<double>& costs, size_t begin, int num_parts) {
  if (num_parts == 1) return std::accumulate(costs.begin() + static_cast<long>(begin), costs.end(), 0.0);
  double best = 1e9, sum = 0;
  for (size_t end = begin + 1; end + static_cast<size_t>(num_parts) - 1 <= costs.size(); ++end) {
    sum += costs[end - 1];
    best = std::min(best, std::max(sum, least_maximum(costs, end, num_parts - 1)));
  }
  return best;
}

TEST(Balance, IsTheBestOfAllWays) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<double> costs(4 + random() % 7);
    for (double& cost : costs) cost = static_cast<double>(random() % 20);
    const int num_stages = 1 + static_cast<int>(random() % 4);
    const Counts counts = *plan_counts(costs, num_stages);
    ASSERT_TRUE(check_counts(counts, costs.size()));
    double largest = 0;
    size_t next = 0;
    for (const int count : counts) {
      double sum = 0;
      for (int i = 0; i < count; ++i) sum += costs[next++];
      largest = std::max(largest, sum);
    }
    EXPECT_EQ(largest, least_maximum(costs, 0, num_stages));
  }
}

TEST(Balance, RefusalsMessage) {
  EXPECT_EQ(plan_counts({1, 2}, 3).error().describe(),
            "pipeline: 2 layers cannot be split over 3 stages\n"
            "  hint: use fewer stages: each needs at least one layer");
  EXPECT_EQ(plan_counts({1, -2}, 1).error().describe(), "pipeline: layer 1 cannot cost -2");
  for (const Counts& counts : {Counts{1, 3}, Counts{0, 5}, Counts{}, Counts{6, -1}}) {
    EXPECT_FALSE(check_counts(counts, 5)) << counts.size();
  }
  EXPECT_EQ(check_counts({1, 3}, 5).error().describe(),
            "pipeline: the counts [1, 3] do not fit 5 layers\n"
            "  hint: give a positive number for each stage; their sum is the number of layers");
  EXPECT_TRUE(check_counts({1, 4}, 5));
}

}  // namespace
}  // namespace cohort::pipeline
