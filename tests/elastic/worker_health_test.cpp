#include "cohort/elastic/workers/worker_health.h"

#include <gtest/gtest.h>

namespace cohort::elastic {
namespace {

using std::chrono::seconds;

/// What is said when the worker shows these states, a second each.
std::vector<std::string> said(const std::string& states) {
  WorkerHealth health;
  std::vector<std::string> words;
  WorkerHealth::Clock::time_point now{};
  for (const char state : states) {
    if (const auto text = health.observe(state, 71, now += seconds(1))) words.push_back(*text);
  }
  return words;
}

using Words = std::vector<std::string>;

TEST(WorkerHealth, WorkAndSleepAreWell) { EXPECT_EQ(said("RSRDSRSDDR"), Words()); }

TEST(WorkerHealth, StopIsSaidOnceAndItsEndMessage) {
  EXPECT_EQ(said("RTTTTS"), (Words{"is stopped (SIGSTOP or a debugger); kill -CONT 71 resumes it", "goes on"}));
  EXPECT_EQ(said("RTSTS"), Words()) << "too short to be worth a word";
}

TEST(WorkerHealth, LongUninterruptibleSleepMessage) {
  EXPECT_EQ(said("DDDDDDDDDDDDDD"),
            Words{"has been in uninterruptible sleep for 10 s: a disk, a network drive or a device does not answer"});
}

TEST(WorkerHealth, LostMainThreadMessage) {
  EXPECT_EQ(said("SZZZ"), Words{"has lost its main thread, while others of its threads still run"});
}

TEST(WorkerHealth, KnowsHowLongItIsStuck) {
  WorkerHealth health;
  WorkerHealth::Clock::time_point now{};
  (void)health.observe('D', 1, now);
  (void)health.observe('D', 1, now + seconds(4));
  EXPECT_EQ(health.stuck_time(), seconds(4));
  (void)health.observe('S', 1, now + seconds(5));
  EXPECT_EQ(health.stuck_time(), seconds(0));
}

}  // namespace
}  // namespace cohort::elastic
