#include "cohort/dtensor/rules/view_placement.h"

#include <gtest/gtest.h>

namespace cohort::dtensor {
namespace {

std::string text(const std::optional<Placement>& placement) { return placement ? placement->short_text() : "none"; }

using Sizes = std::vector<int64_t>;

std::string one(const Placement& cut, const Sizes& from, const Sizes& to, int64_t num_ranks) {
  return text(viewed(cut, from, to, num_ranks));
}

TEST(ViewPlacement, KeepsTheFirstOfJoinedDims) {
  EXPECT_EQ(one(Shard(0), {4, 6, 3}, {24, 3}, 2), "S(0)");
  EXPECT_EQ(one(Shard(1), {4, 6, 3}, {4, 18}, 2), "S(1)");
  EXPECT_EQ(one(Shard(2), {4, 6, 3}, {24, 3}, 2), "S(1)");
  EXPECT_EQ(one(Shard(0), {3, 6}, {18}, 2), "none");  // 2 and 1 of 3 rows are not 9 and 9 of 18
}

TEST(ViewPlacement, LaterJoinedDimsBecomeStrided) {
  EXPECT_EQ(one(Shard(1), {4, 6, 3}, {24, 3}, 2), "_S(0, 4)");
  EXPECT_EQ(one(Shard(1), {4, 5}, {20}, 3), "_S(0, 4)");  // pieces of any size
  EXPECT_EQ(one(StridedShard(0, 4), {24, 3}, {4, 6, 3}, 2), "S(1)");
  EXPECT_EQ(one(StridedShard(0, 4), {20}, {4, 5}, 3), "S(1)");
  EXPECT_EQ(one(StridedShard(0, 4), {24}, {2, 12}, 2), "_S(1, 2)");
}

TEST(ViewPlacement, SplitDimsNeedEqualParts) {
  EXPECT_EQ(one(Shard(0), {24}, {4, 6}, 2), "S(0)");
  EXPECT_EQ(one(Shard(0), {24}, {3, 8}, 2), "none");
  EXPECT_EQ(one(Shard(0), {24}, {1, 24}, 5), "S(1)");
  EXPECT_EQ(one(Shard(1), {5, 8}, {5, 4, 2}, 4), "S(1)");
  EXPECT_EQ(one(Shard(1), {5, 8}, {5, 2, 4}, 4), "none");
}

TEST(ViewPlacement, AxesFollowEachOther) {
  const auto both = [](const Placements& placements, const Sizes& from, const Sizes& to, const Sizes& mesh) {
    const auto ways = viewed(placements, from, to, mesh);
    return to_string(ways.kept) + " -> " + to_string(ways.viewed);
  };
  // The second axis sees the one index of dim 0 that the first has left.
  EXPECT_EQ(both({Shard(0), Shard(1)}, {2, 4}, {8}, {2, 2}),
            "(Shard(dim=0), Shard(dim=1)) -> (Shard(dim=0), Shard(dim=0))");
  EXPECT_EQ(both({Shard(0), Shard(1)}, {3, 4}, {12}, {2, 2}),
            "(Replicate(), Shard(dim=1)) -> (Replicate(), _StridedShard(dim=0, sf=3))");
  EXPECT_EQ(both({Shard(0), Shard(0)}, {5, 3}, {5, 3, 1}, {2, 2}),
            "(Shard(dim=0), Shard(dim=0)) -> (Shard(dim=0), Shard(dim=0))");
  EXPECT_EQ(both({Partial(), Replicate()}, {4}, {2, 2}, {2, 2}),
            "(Partial(sum), Replicate()) -> (Partial(sum), Replicate())");
}

}  // namespace
}  // namespace cohort::dtensor
