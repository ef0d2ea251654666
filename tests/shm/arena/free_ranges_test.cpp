#include "cohort/shm/arena/free_ranges.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace cohort::shm {
namespace {

TEST(FreeRanges, TakesTheShortestThatFitsAndOfThoseTheFirst) {
  FreeRanges ranges;
  ranges.add({0, 100});
  ranges.add({200, 30});
  ranges.add({300, 30});
  ranges.add({400, 40});
  EXPECT_EQ(ranges.take(30), 200u);
  EXPECT_EQ(ranges.take(25), 300u);
  EXPECT_EQ(ranges.take(31), 400u);
  EXPECT_EQ(ranges.take(5), 325u);
  EXPECT_EQ(ranges.take(101), std::nullopt);
  EXPECT_EQ(ranges.take(100), 0u);
  EXPECT_EQ(ranges.bytes(), 9u);
}

TEST(FreeRanges, JoinsNeighborsOnBothSides) {
  FreeRanges ranges;
  ranges.add({0, 10});
  ranges.add({20, 10});
  EXPECT_EQ(ranges.take(11), std::nullopt);
  ranges.add({10, 10});
  EXPECT_EQ(ranges.take(30), 0u);
  EXPECT_EQ(ranges.bytes(), 0u);
}

TEST(FreeRanges, GivesFromTheEndOfTheLongest) {
  FreeRanges ranges;
  ranges.add({0, 10});
  ranges.add({100, 50});
  const auto some = ranges.take_from_longest(20);
  EXPECT_EQ(some.begin, 130u);
  EXPECT_EQ(some.bytes, 20u);
  const auto rest = ranges.take_from_longest(1000);
  EXPECT_EQ(rest.begin, 100u);
  EXPECT_EQ(rest.bytes, 30u);
  EXPECT_EQ(ranges.take_from_longest(1000).bytes, 10u);
  EXPECT_EQ(ranges.take_from_longest(1000).bytes, 0u);
  EXPECT_EQ(ranges.bytes(), 0u);
}

TEST(FreeRanges, TellsWhatTwoWouldHoldTogether) {
  FreeRanges one, other;
  EXPECT_FALSE(would_fit_joined(one, other, 1));
  one.add({0, 10});
  other.add({10, 10});
  one.add({20, 5});
  other.add({30, 10});
  one.add({50, 15});
  EXPECT_TRUE(would_fit_joined(one, other, 25));
  EXPECT_FALSE(would_fit_joined(one, other, 26));
  EXPECT_TRUE(would_fit_joined(other, one, 25));
}

// Beside a plain list of which byte is free.
TEST(FreeRanges, NeverGivesAByteTwiceAndLosesNone) {
  constexpr size_t kBytes = 1000;
  std::mt19937 random(7);
  FreeRanges ranges;
  ranges.add({0, kBytes});
  std::vector<bool> is_free(kBytes, true);
  std::vector<Extent> taken;
  size_t num_free = kBytes;
  for (int step = 0; step < 20000; ++step) {
    if (random() % 2 == 0) {
      const size_t bytes = 1 + random() % 60;
      const auto begin = ranges.take(bytes);
      if (!begin) continue;
      for (size_t i = *begin; i < *begin + bytes; ++i) {
        ASSERT_TRUE(is_free[i]);
        is_free[i] = false;
      }
      taken.push_back({*begin, bytes});
      num_free -= bytes;
    } else if (!taken.empty()) {
      const auto which = random() % taken.size();
      const auto range = taken[which];
      taken.erase(taken.begin() + static_cast<long>(which));
      ranges.add(range);
      std::fill_n(is_free.begin() + static_cast<long>(range.begin), range.bytes, true);
      num_free += range.bytes;
    }
    ASSERT_EQ(ranges.bytes(), num_free);
  }
  for (const auto& range : taken) ranges.add(range);
  EXPECT_EQ(ranges.take(kBytes), 0u);
}

}  // namespace
}  // namespace cohort::shm
