#include "cohort/mesh/mesh_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/support/require.h"

namespace cohort::mesh {
namespace {

using Numbers = std::vector<int64_t>;

TEST(MeshLayout, NormalFormIsTheSameForTheSameEntries) {
  EXPECT_EQ(make_axis({2, 3}, {3, 1}), make_axis({6}, {1}));
  EXPECT_EQ(make_axis({2, 1, 3}, {3, 7, 1}), make_axis({6}, {1}));
  EXPECT_EQ(make_axis({1}, {4}), AxisLayout{});
  EXPECT_EQ(make_axis({2, 2}, {4, 1}).sizes, (Numbers{2, 2}));
  EXPECT_EQ(make_axis({2, 2}, {4, 1}).entries(), (Numbers{0, 1, 4, 5}));
  EXPECT_EQ(AxisLayout{}.entries(), Numbers{0});
}

TEST(MeshLayout, KnowsOrderAndOverlap) {
  EXPECT_TRUE(make_axis({2, 2}, {4, 1}).is_sorted());
  EXPECT_FALSE(make_axis({2, 2}, {1, 4}).is_sorted());
  EXPECT_TRUE(make_axis({2, 2}, {1, 4}).is_orthogonal());
  EXPECT_FALSE(make_axis({2, 3}, {2, 1}).is_orthogonal());
}

// Every choice of axes of a mesh: its copies have each entry once, and each copy is the array's values with the other
// axes fixed.
TEST(MeshLayout, CopiesCoverAllEntriesOnce) {
  const Numbers shape{2, 3, 2};
  const auto layout = dense_layout(shape);
  for (int chosen = 1; chosen < 8; ++chosen) {
    Layout some;
    for (int axis = 0; axis < 3; ++axis) {
      if ((chosen >> axis) % 2 == 1) some.push_back(layout[axis]);
    }
    const auto copies = all_copies(some, 12);
    Numbers all;
    for (const auto& copy : copies) {
      EXPECT_TRUE(std::is_sorted(copy.begin(), copy.end()));
      for (const int64_t entry : copy) {
        const Numbers place{entry / 6, entry / 2 % 3, entry % 2};
        const Numbers first{copy[0] / 6, copy[0] / 2 % 3, copy[0] % 2};
        for (int axis = 0; axis < 3; ++axis) {
          EXPECT_TRUE((chosen >> axis) % 2 == 1 || place[axis] == first[axis]);
        }
        all.push_back(entry);
      }
    }
    std::sort(all.begin(), all.end());
    Numbers expected(12);
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(all, expected);
    EXPECT_EQ(copies.front().front(), 0);
  }
}

TEST(MeshLayout, UnflattenedAxesHaveTheSameEntries) {
  for (const auto& axis : {make_axis({12}, {1}), make_axis({12}, {3}), make_axis({2, 6}, {12, 1})}) {
    for (const auto& sizes : {Numbers{12}, Numbers{2, 6}, Numbers{2, 3, 2}, Numbers{2, 1, 6}}) {
      const auto parts = unflattened(axis, sizes);
      ASSERT_EQ(parts.size(), sizes.size());
      for (size_t i = 0; i < sizes.size(); ++i) EXPECT_EQ(parts[i].num_places(), sizes[i]);
      EXPECT_EQ(joined(parts).entries(), axis.entries());
    }
  }
  EXPECT_EQ(test::error_of([] {
              unflattened(make_axis({2, 3}, {12, 1}), {3, 2});
            }),
            "[cohort] A mesh dimension of sizes (2, 3) cannot be cut at every 2 places");
}

TEST(MeshLayout, OverlapHasNoComplement) {
  EXPECT_EQ(test::error_of([] {
              complement(make_axis({4, 2}, {2, 3}), 8);
            }),
            "[cohort] A mesh layout of sizes (4, 2) and strides (2, 3) overlaps itself");
}

}  // namespace
}  // namespace cohort::mesh
