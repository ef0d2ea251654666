#include "cohort/base/system/deadline.h"

#include <gtest/gtest.h>

namespace cohort::base {
namespace {

using std::chrono::milliseconds;

TEST(Deadline, OfAnyTimeFits) {
  const Moment begin(std::chrono::hours(1000));
  EXPECT_EQ(deadline_after(milliseconds(250), begin), begin + milliseconds(250));
  EXPECT_EQ(deadline_after(milliseconds(-250), begin), begin - milliseconds(250));
  EXPECT_EQ(deadline_after(milliseconds::max(), begin), begin + kLongestTime);
  EXPECT_EQ(deadline_after(milliseconds::min(), begin), begin - kLongestTime);
  EXPECT_GT(deadline_after(milliseconds::max()) + kLongestTime, Moment::clock::now());
  EXPECT_EQ(bounded_time(milliseconds::max()), kLongestTime);
  EXPECT_EQ(bounded_time(milliseconds(-1)), milliseconds(-1));
}

TEST(Deadline, TheTimeLeftIsRoundedUp) {
  const Moment now(std::chrono::hours(1000));
  EXPECT_EQ(time_left(now + std::chrono::microseconds(1), now), milliseconds(1));
  EXPECT_EQ(time_left(now + milliseconds(250), now), milliseconds(250));
  EXPECT_EQ(time_left(now, now), milliseconds(0));
  EXPECT_EQ(time_left(now - milliseconds(5), now), milliseconds(-5));
}

TEST(Deadline, PollWaitsForAnHourAtMost) {
  EXPECT_EQ(milliseconds_until(deadline_after(milliseconds::max())), 3'600'000);
  EXPECT_EQ(milliseconds_until(deadline_after(milliseconds::min())), 0);
  const int left = milliseconds_until(deadline_after(std::chrono::minutes(30)));
  EXPECT_GT(left, 0);
  EXPECT_LE(left, 30 * 60'000);
}

}  // namespace
}  // namespace cohort::base
