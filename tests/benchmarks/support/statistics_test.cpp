#include "benchmarks/support/statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>

namespace cohort::bench {
namespace {

// 1, 2, ..., count, not in order.
std::vector<double> first_numbers(int count) {
  std::vector<double> values(count);
  std::iota(values.begin(), values.end(), 1.0);
  std::reverse(values.begin(), values.end());
  return values;
}

TEST(Median, IsTheMiddleValueOrTheMeanOfTheTwo) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 3, 2}), 2.5);
  EXPECT_EQ(median({7}), 7);
}

// Ranks from published tables of the sign test at 95 %.
TEST(MedianBounds, AreTheOrderStatisticsOfTheSignTest) {
  for (const auto& [count, low, high] : {std::array{6, 1, 6}, {10, 2, 9}, {20, 6, 15}, {30, 10, 21}, {50, 18, 33}}) {
    const auto bounds = median_bounds(first_numbers(count));
    EXPECT_EQ(bounds.low, low) << count << " values";
    EXPECT_EQ(bounds.high, high) << count << " values";
  }
}

TEST(MedianBounds, AreTheExtremesOfFewValues) {
  const auto bounds = median_bounds(first_numbers(4));
  EXPECT_EQ(bounds.low, 1);
  EXPECT_EQ(bounds.high, 4);
  EXPECT_EQ(median_bounds({5}).low, 5);
}

TEST(BootstrapBounds, EncloseTheMeanOfManyValues) {
  const auto values = first_numbers(100);
  const auto bounds = bootstrap_bounds(values.size(), [&](const std::vector<size_t>& indices) {
    double sum = 0;
    for (const size_t index : indices) sum += values[index];
    return sum / static_cast<double>(indices.size());
  });
  // The mean's standard error is 2.9.
  EXPECT_NEAR(bounds.low, 50.5 - 1.96 * 2.9, 1);
  EXPECT_NEAR(bounds.high, 50.5 + 1.96 * 2.9, 1);
}

TEST(FitLine, FindsALineThroughPoints) {
  const auto line = fit_line({1, 10, 100, 1000}, {1.15, 2.5, 16, 151});
  EXPECT_NEAR(line.intercept, 1, 1e-9);
  EXPECT_NEAR(line.slope, 0.15, 1e-9);
}

TEST(FitLine, WeighsRelativeErrors) {
  // Ten percent more at the far end must not bend the near end away.
  const auto line = fit_line({1, 10, 1000}, {2, 11, 1101});
  EXPECT_NEAR(line.intercept + line.slope, 2, 0.3);
}

}  // namespace
}  // namespace cohort::bench
