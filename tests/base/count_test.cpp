#include "cohort/base/numbers/count.h"

#include <gtest/gtest.h>

namespace cohort::base {
namespace {

TEST(Count, IsDividedUp) {
  EXPECT_EQ(divide_up(6, 3), 2);
  EXPECT_EQ(divide_up(7, 3), 3);
  EXPECT_EQ(divide_up(0, 3), 0);
  EXPECT_EQ(divide_up<int64_t>(5, INT64_MAX), 1);
  EXPECT_EQ(divide_up<uint64_t>(UINT64_MAX, 2), uint64_t{1} << 63);
}

TEST(Count, WhatDoesNotFitIsTheLargestNumber) {
  EXPECT_EQ(add_capped(2, 3), 5);
  EXPECT_EQ(add_capped(INT64_MAX, 1), INT64_MAX);
  EXPECT_EQ(multiply_capped(2, 3), 6);
  EXPECT_EQ(multiply_capped(INT64_MAX, 0), 0);
  EXPECT_EQ(multiply_capped(int64_t{1} << 32, int64_t{1} << 32), INT64_MAX);
}

}  // namespace
}  // namespace cohort::base
