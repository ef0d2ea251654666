// Which steps are noted, and what is made of the moments.
#include "cohort/parallel/ddp/engines/step_times.h"

#include <gtest/gtest.h>

#include <thread>

namespace cohort::ddp {
namespace {

using std::chrono::milliseconds;

void pause() { std::this_thread::sleep_for(milliseconds(2)); }

// Two buckets; the second is ready, and launched, when backward has nothing left to do.
void run_step(StepTimes& times) {
  times.begin_forward();
  times.begin_step();
  pause();
  times.gradient(1);
  times.ready(0);
  times.launched(0);
  pause();
  times.gradient(0);
  times.ready(1);
  pause();
  times.launched(1);
  times.finished(0);
  pause();
  times.finished(1);
  times.end_step();
}

TEST(StepTimes, OrderTheMomentsOfAStep) {
  StepTimes times;
  times.set_buckets(2);
  run_step(times);
  const auto& last = times.last();
  constexpr int64_t kPause = 2'000'000;
  EXPECT_GE(last.backward_begin, kPause);
  EXPECT_GE(last.compute_end - last.backward_begin, kPause);
  EXPECT_GE(last.comm_begin, last.backward_begin);
  EXPECT_EQ(last.overlap, last.compute_end - last.comm_begin);
  EXPECT_GE(last.comm_end - last.compute_end, 2 * kPause);
  EXPECT_GT(last.forward_begin, int64_t{1'700'000'000} * 1'000'000'000);
  EXPECT_EQ(times.gradient_order(), (std::vector<size_t>{1, 0}));
  const auto& buckets = times.bucket_sums();
  ASSERT_EQ(buckets.size(), 2u);
  EXPECT_GE(buckets[0].finished - buckets[0].launched, 2 * kPause);
  EXPECT_EQ(buckets[0].exposed, buckets[0].finished - last.compute_end);
  EXPECT_EQ(buckets[1].exposed, last.comm_end - buckets[0].finished);
  EXPECT_EQ(last.comm_end, buckets[1].finished);
}

TEST(StepTimes, NoteTenStepsAndThenFew) {
  StepTimes times;
  times.set_buckets(2);
  times.set_sample_rate(20);
  std::vector<int64_t> noted;
  for (int step = 1; step <= 45; ++step) {
    const auto before = times.num_noted();
    times.begin_forward();
    times.begin_step();
    times.gradient(0);
    times.end_step();
    if (times.num_noted() > before) noted.push_back(step);
  }
  EXPECT_EQ(noted, (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 40}));
  EXPECT_EQ(times.num_steps(), 45);
  EXPECT_EQ(times.last_number(), 40);
}

// Forward passes without a reduction, as under no_sync(), and steps that failed leave nothing behind.
TEST(StepTimes, OnlyStepsThatEndedCount) {
  StepTimes times;
  times.set_buckets(2);
  times.begin_forward();
  times.gradient(7);
  run_step(times);
  EXPECT_EQ(times.num_noted(), 1);
  EXPECT_EQ(times.gradient_order(), (std::vector<size_t>{1, 0}));
  times.begin_forward();
  times.begin_step();
  times.gradient(5);
  run_step(times);
  EXPECT_EQ(times.num_noted(), 2);
  EXPECT_EQ(times.gradient_order(), (std::vector<size_t>{1, 0}));
  times.set_buckets(3);
  EXPECT_EQ(times.num_noted_of_buckets(), 0);
  EXPECT_EQ(times.bucket_sums().size(), 3u);
}

}  // namespace
}  // namespace cohort::ddp
