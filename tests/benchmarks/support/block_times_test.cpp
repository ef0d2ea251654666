#include "benchmarks/support/block_times.h"

#include <gtest/gtest.h>

#include <numeric>
#include <stdexcept>

namespace cohort::bench {
namespace {

TEST(SlowestRank, IsTheOneWhoseCallsTookLongestTogether) {
  EXPECT_EQ(slowest_rank({"1 1 9", "4 4 4 ", "2 2 2"}), (std::vector<double>{4, 4, 4}));
  EXPECT_EQ(slowest_rank({"0 0", "0 0"}), (std::vector<double>{0, 0}));
}

TEST(SlowestRank, RefusesWhatIsNoTime) {
  EXPECT_THROW(slowest_rank({"1 2", "error: lost"}), std::runtime_error);
  EXPECT_THROW(slowest_rank({""}), std::runtime_error);
}

TEST(BlockTimes, KeepMediansAndMeansByBlockInMicroseconds) {
  BlockTimes times;
  EXPECT_TRUE(times.empty());
  times.add({1000, 2000, 9000});
  times.add({4000});
  EXPECT_EQ(times.medians(), (std::vector<double>{2, 4}));
  EXPECT_EQ(times.means(), (std::vector<double>{4, 4}));
}

TEST(BlockTimes, SpreadIsOverAllCalls) {
  BlockTimes times;
  std::vector<double> block(100);
  std::iota(block.begin(), block.end(), 1.0);
  for (double& time : block) time *= 1000;
  times.add(block);
  times.add({1e6});
  const Spread spread = times.spread();
  EXPECT_EQ(spread.min, 1);
  EXPECT_EQ(spread.p50, 51);
  EXPECT_EQ(spread.p99, 100) << "of 101 calls one may be slower";
  EXPECT_NEAR(spread.mean, 6050.0 / 101, 1e-9);
}

TEST(CompareBlocks, TakesMediansOfPairsAndKeepsMeansBeside) {
  BlockTimes ours, rival;
  // Two of three calls are fast, the third is not.
  for (int i = 0; i < 7; ++i) ours.add({1000, 1000, 28000});
  for (int i = 0; i < 7; ++i) rival.add({5000, 5000, 5000});
  const Row row = compare_blocks(ours, rival);
  EXPECT_EQ(row.ours, 1);
  EXPECT_EQ(row.rival, 5);
  EXPECT_EQ(row.ratio, 5);
  EXPECT_EQ(row.ratio_of_means, 0.5);
  EXPECT_EQ(row.num_pairs, 7U);
  EXPECT_EQ(row.unit, "us");
  EXPECT_EQ(row.bounds->low, 5);
  EXPECT_EQ(row.ours_spread->p99, 28);
  EXPECT_EQ(row.rival_spread->min, 5);
}

}  // namespace
}  // namespace cohort::bench
