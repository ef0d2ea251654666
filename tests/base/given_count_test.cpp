#include "cohort/base/numbers/given_count.h"

#include <gtest/gtest.h>

namespace cohort::base {
namespace {

using std::chrono::milliseconds;

TEST(GivenCount, MayBeAbsent) {
  EXPECT_EQ(count_error({}), std::nullopt);
  EXPECT_EQ(count_error({{"steps", std::optional<int64_t>()}, {"epochs", 1}, {"time", milliseconds(1)}}), std::nullopt);
}

TEST(GivenCount, TheFirstBelowOneMessage) {
  EXPECT_EQ(count_error({{"steps", 1}, {"epochs", 0}, {"time", -1}}),
            "epochs is at least 1, but got 0\n  hint: leave it out, or set it to std::nullopt");
  EXPECT_EQ(count_error({{"time", milliseconds(-1000)}}),
            "time is at least 1, but got -1000\n  hint: leave it out, or set it to std::nullopt");
}

}  // namespace
}  // namespace cohort::base
