// Against Python's owners: tests/e2e/parallel/zero_test.py.
#include "cohort/parallel/zero/partition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cohort::zero {
namespace {

TEST(ZeroPartition, TheLargestGoFirstEachToTheRankWithTheLeast) {
  EXPECT_EQ(partition_by_size({{1, 9, 4, 5, 4}}, 2), (Partition{{{1, 4}}, {{3, 2, 0}}}));
}

TEST(ZeroPartition, EqualSizesKeepTheirOrderAndLowRanksComeFirst) {
  EXPECT_EQ(partition_by_size({{3, 3, 3, 3}}, 3), (Partition{{{0, 3}}, {{1}}, {{2}}}));
}

TEST(ZeroPartition, GroupsCountTogetherAndALaterOneChangesNoOwner) {
  const auto one = partition_by_size({{8, 2}}, 2);
  const auto two = partition_by_size({{8, 2}, {5, 1}}, 2);
  EXPECT_EQ(two, (Partition{{{0}, {}}, {{1}, {0, 1}}}));
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(two[rank][0], one[rank][0]);
}

TEST(ZeroPartition, RanksWithoutAnyParameterHaveEmptyGroups) {
  EXPECT_EQ(partition_by_size({{2}, {}}, 3), (Partition{{{0}, {}}, {{}, {}}, {{}, {}}}));
}

}  // namespace
}  // namespace cohort::zero
