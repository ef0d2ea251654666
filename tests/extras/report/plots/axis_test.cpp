#include "cohort/extras/report/plots/axis.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace cohort::report {
namespace {

std::string labels(const Axis& axis) {
  std::string text;
  for (const Tick& tick : axis.ticks()) text += (text.empty() ? "" : " ") + tick.label;
  return text;
}

TEST(Axis, TicksAreRoundNumbers) {
  EXPECT_EQ(labels(Axis(0, 1, 6)), "0 0.2 0.4 0.6 0.8 1.0");
  EXPECT_EQ(labels(Axis(0.13, 2.41, 8)), "0 0.5 1.0 1.5 2.0 2.5");
  EXPECT_EQ(labels(Axis(0, 391, 8)), "0 100 200 300 400");
  EXPECT_EQ(labels(Axis(0, 24000, 9)), "0 5000 10k 15k 20k 25k");
  EXPECT_EQ(labels(Axis(0, 2.4e6, 9)), "0 500k 1.0M 1.5M 2.0M 2.5M");
  EXPECT_EQ(labels(Axis(-0.02, 0.02, 8)), "-0.02 -0.01 0 0.01 0.02");
  EXPECT_EQ(labels(Axis(0, 3e-6, 5)), "0 1e-06 2e-06 3e-06");
  EXPECT_EQ(labels(Axis(1.000000e9, 1.000002e9, 3)), "1e+09 1.000001e+09 1.000002e+09");
}

TEST(Axis, HasNoMoreTicksThanAskedFor) {
  for (int max_ticks = 2; max_ticks < 12; ++max_ticks) {
    for (double low = -3; low < 3; low += 0.37) {
      const Axis axis(low, low + 7.3, max_ticks);
      EXPECT_LE(axis.ticks().size(), static_cast<size_t>(std::max(3, max_ticks)));
      EXPECT_GE(axis.place(low), 0.0);
      EXPECT_LE(axis.place(low + 7.3), 1.0);
    }
  }
}

TEST(Axis, NumbersThatAreAllAlikeHaveOne) {
  const Axis axis(5, 5, 5);
  EXPECT_GT(axis.place(5), 0.0);
  EXPECT_LT(axis.place(5), 1.0);
  EXPECT_GE(axis.ticks().size(), 2U);
  EXPECT_EQ(labels(Axis(0, 0, 5)), "-1.0 -0.5 0 0.5 1.0");
}

TEST(Axis, PlacesEndsAtTheEnds) {
  const Axis axis(0, 400, 9);
  EXPECT_EQ(axis.place(0), 0.0);
  EXPECT_EQ(axis.place(400), 1.0);
  EXPECT_EQ(axis.place(100), 0.25);
}

TEST(Axis, OfPowersOfTen) {
  const Axis axis(0.02, 50, 10, true);
  EXPECT_EQ(labels(axis), "1e-2 1e-1 1e0 1e1 1e2");
  EXPECT_DOUBLE_EQ(axis.place(1), 0.5);
  EXPECT_EQ(labels(Axis(1e-300, 1e300, 4, true)), "1e-300 1e-100 1e100 1e300");
}

TEST(Axis, HugeNumbersHaveOneToo) {
  for (const double high : {1e300, 1.7e308}) {
    const Axis axis(-high, high, 8);
    EXPECT_LE(axis.ticks().size(), 20U);
    EXPECT_GE(axis.place(high), 0.0);
    EXPECT_LE(axis.place(high), 1.0);
  }
  const Axis tiny(1.0, 1.0 + 1e-15, 8);
  EXPECT_LE(tiny.ticks().size(), 20U);
}

}  // namespace
}  // namespace cohort::report
