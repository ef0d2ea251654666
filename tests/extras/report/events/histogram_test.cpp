#include "cohort/extras/report/events/histogram.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

namespace cohort::report {
namespace {

using Numbers = std::vector<double>;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(Histogram, CountsInBinsWithAnEmptyOneBefore) {
  const Numbers edges = {0, 1, 2, 3, 4};
  const auto histogram = make_histogram(Numbers{1.0, 1.5, 2.0, 2.5}, edges);
  ASSERT_TRUE(histogram);
  EXPECT_EQ(histogram->bucket_limits, (Numbers{1, 2, 3}));
  EXPECT_EQ(histogram->bucket_counts, (Numbers{0, 2, 2}));
  EXPECT_EQ(histogram->min, 1.0);
  EXPECT_EQ(histogram->max, 2.5);
  EXPECT_EQ(histogram->count, 4);
  EXPECT_EQ(histogram->sum, 7.0);
  EXPECT_EQ(histogram->sum_of_squares, 1.0 + 2.25 + 4.0 + 6.25);
}

TEST(Histogram, TheLastBinHasItsUpperEdge) {
  const auto histogram = make_histogram(Numbers{4.0}, Numbers{0, 1, 2, 3, 4});
  EXPECT_EQ(histogram->bucket_limits, (Numbers{3, 4}));
  EXPECT_EQ(histogram->bucket_counts, (Numbers{0, 1}));
}

TEST(Histogram, JoinsNeighborsWhereThereAreTooManyBins) {
  const Numbers edges = {0, 1, 2, 3, 4, 5};
  const auto histogram = make_histogram(Numbers{0.5, 1.5, 2.5, 4.5}, edges, 2);
  EXPECT_EQ(histogram->bucket_limits, (Numbers{0, 2, 4, 5}));
  EXPECT_EQ(histogram->bucket_counts, (Numbers{0, 2, 1, 1}));
}

TEST(Histogram, DefaultEdgesAreThoseOfTensorBoard) {
  const Numbers& edges = default_bin_edges();
  EXPECT_EQ(edges.size(), 1549U);
  EXPECT_EQ(edges[774], 0.0);
  EXPECT_EQ(edges[775], 1e-12);
  EXPECT_EQ(edges[776], 1e-12 * 1.1);
  EXPECT_EQ(edges[0], -edges.back());
  EXPECT_LT(edges.back(), 1e20);
}

TEST(Histogram, WhatIsNoNumberIsInNoBin) {
  const auto histogram = make_histogram(Numbers{1.0, kNan, 1e30}, default_bin_edges());
  ASSERT_TRUE(histogram);
  const Numbers& counts = histogram->bucket_counts;
  EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), 0.0), 1.0);
  EXPECT_EQ(histogram->count, 3);
  EXPECT_TRUE(std::isnan(histogram->min) && std::isnan(histogram->max) && std::isnan(histogram->sum));
}

TEST(Histogram, FailsWithoutANumber) {
  const auto histogram = make_histogram(Numbers{kNan}, default_bin_edges());
  ASSERT_FALSE(histogram.ok());
  EXPECT_EQ(histogram.error().describe(), "it has no numbers between -1e20 and 1e20");
}

}  // namespace
}  // namespace cohort::report
