#include "cohort/files/tensors/elements/region.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace cohort::files {
namespace {

using Ranges = IndexRanges;

std::vector<ElementRun> runs(const Region& from, const Region& to) {
  std::vector<ElementRun> list;
  const auto done = for_each_common_run(from, to, [&](const ElementRun& run) -> base::Result<void> {
    list.push_back(run);
    return {};
  });
  EXPECT_TRUE(done.ok());
  return list;
}

// The value of an element of the whole is its place; a part's tensor holds those of its region.
std::vector<int64_t> part_of(const Region& region, const std::vector<int64_t>& shape) {
  std::vector<int64_t> places{0};
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    std::vector<int64_t> longer;
    for (const int64_t place : places) {
      for (const IndexRange& range : region[dim]) {
        for (int64_t i = range.begin; i < range.end; ++i) longer.push_back(place * shape[dim] + i);
      }
    }
    places = std::move(longer);
  }
  return places;
}

Region random_region(const std::vector<int64_t>& shape, std::mt19937& random) {
  Region region;
  for (const int64_t size : shape) {
    region.emplace_back();
    for (int64_t i = 0; i < size; ++i) {
      if (random() % 3 == 0) continue;
      Ranges& ranges = region.back();
      if (!ranges.empty() && ranges.back().end == i) {
        ++ranges.back().end;
      } else {
        ranges.push_back({i, i + 1});
      }
    }
  }
  return region;
}

TEST(Region, CopiesWhatTwoPartsHaveInCommon) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<int64_t> shape(random() % 4);
    for (int64_t& size : shape) size = 1 + static_cast<int64_t>(random() % 5);
    const Region from = trial % 5 == 0 ? whole_region(shape) : random_region(shape, random);
    const Region to = trial % 7 == 0 ? whole_region(shape) : random_region(shape, random);
    const auto source = part_of(from, shape);
    auto expected = part_of(to, shape);
    std::vector<int64_t> target(expected.size(), -1);
    int64_t reached = 0;
    for (const ElementRun& run : runs(from, to)) {
      EXPECT_GE(run.from, reached);
      reached = run.from + run.count;
      for (int64_t i = 0; i < run.count; ++i) target.at(run.to + i) = source.at(run.from + i);
    }
    for (int64_t& value : expected) {
      if (std::find(source.begin(), source.end(), value) == source.end()) value = -1;
    }
    EXPECT_EQ(target, expected);
  }
}

TEST(Region, NeighborsAreOneRun) {
  // Rows 2 and 3 of four, all columns, into the whole; then columns.
  auto list = runs(box_region({2, 0}, {2, 8}), whole_region({4, 8}));
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0].to, 16);
  EXPECT_EQ(list[0].count, 16);
  list = runs(box_region({0, 4}, {4, 4}), whole_region({4, 8}));
  ASSERT_EQ(list.size(), 4u);
  EXPECT_EQ(list[3].to, 28);
  // Ranges without a gap between them.
  EXPECT_EQ(runs({{{0, 2}, {2, 4}}}, whole_region({4})).size(), 1u);
  // Ranges in another order: 1 and 2 are neighbors in both.
  EXPECT_EQ(runs({{{0, 2}, {2, 3}}}, {{{1, 2}, {2, 3}, {0, 1}}}).size(), 2u);
  EXPECT_EQ(runs({}, {}).size(), 1u);
  EXPECT_TRUE(runs(box_region({0}, {2}), box_region({2}, {2})).empty());
  EXPECT_TRUE(runs(whole_region({0, INT64_MAX, INT64_MAX}), whole_region({0, INT64_MAX, INT64_MAX})).empty());
}

TEST(Region, SlicesAreTheRegionInOrder) {
  std::mt19937 random(8);
  const std::vector<int64_t> shape{5, 4, 3};
  for (int trial = 0; trial < 100; ++trial) {
    const Region region = random_region(shape, random);
    const int64_t limit = 1 + trial % 20;
    std::vector<int64_t> all;
    ASSERT_TRUE(for_each_slice(region, limit, [&](const Region& slice) -> base::Result<void> {
                  EXPECT_LE(num_elements(slice), limit);
                  const auto part = part_of(slice, shape);
                  all.insert(all.end(), part.begin(), part.end());
                  return {};
                }).ok());
    EXPECT_EQ(all, part_of(region, shape));
  }
}

TEST(Region, PartsThatAreNotTheWhole) {
  const Region left = box_region({0, 0}, {2, 1});
  const Region right = box_region({0, 1}, {2, 1});
  EXPECT_EQ(partition_problem({2, 2}, {left, right}), std::nullopt);
  EXPECT_EQ(partition_problem({}, {{}}), std::nullopt);
  EXPECT_EQ(partition_problem({0, 3}, {}), std::nullopt);
  EXPECT_EQ(partition_problem({2, 2}, {left}), "parts have 2 of 4 elements");
  EXPECT_EQ(partition_problem({2, 2}, {left, right, box_region({1, 0}, {1, 2})}),
            "parts overlap: [0:2, 0:1] and [1:2, 0:2]");
  EXPECT_EQ(partition_problem({2, 2}, {box_region({1, 0}, {2, 2})}),
            "[1:3, 0:2] does not lie in the tensor: dimension 0 has 2 indices");
  EXPECT_EQ(partition_problem({4}, {box_region({0, 0}, {4, 1})}), "[0:4, 0:1] has 2 dimensions, the tensor has 1");
  EXPECT_EQ(partition_problem({4}, {{{{2, 4}, {0, 2}}}}),
            "[2:4+0:2] does not lie in the tensor: dimension 0 has 4 indices");
}

// With more ranks than rows some parts are empty: their first dimension, or another, has no indices.
TEST(Region, EmptyPartsBelongToEveryWhole) {
  const Region whole = whole_region({2, 2});
  const Region no_rows{{}, {{0, 2}}};
  const Region no_columns{{{0, 2}}, {}};
  EXPECT_EQ(partition_problem({2, 2}, {no_rows, whole, no_columns, {{}, {}}}), std::nullopt);
  EXPECT_EQ(partition_problem({2, 2}, {no_rows, no_columns}), "parts have 0 of 4 elements");
  EXPECT_EQ(partition_problem({0, 2}, {no_rows, no_rows}), std::nullopt);
  EXPECT_EQ(partition_problem({2, 2}, {whole, no_rows, box_region({1, 1}, {1, 1})}),
            "parts overlap: [0:2, 0:2] and [1:2, 1:2]");
  EXPECT_EQ(partition_problem({2, 2}, {whole, {{}, {{1, 3}}}}),
            "[nothing, 1:3] does not lie in the tensor: dimension 1 has 2 indices");
}

TEST(Region, BoxesOfAPartWithGaps) {
  const Region region{{{0, 1}, {2, 3}}, {{0, 4}}, {{1, 2}, {3, 4}}};
  EXPECT_EQ(boxes_of(region).size(), 4u);
  EXPECT_EQ(region_text(boxes_of(region)[3]), "[2:3, 0:4, 3:4]");
  EXPECT_TRUE(contains(region, boxes_of(region)[1]));
  EXPECT_FALSE(contains(boxes_of(region)[1], region));
  EXPECT_FALSE(contains(region, whole_region({3, 4, 4})));
}

}  // namespace
}  // namespace cohort::files
