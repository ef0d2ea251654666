#include "cohort/base/process.h"

#include <gtest/gtest.h>

#include <csignal>
#include <iostream>
#include <stdexcept>

#include "tests/support/rank_processes.h"

namespace cohort::base {
namespace {

using namespace std::chrono_literals;

COHORT_WORKER(prints_rank) { std::cout << "rank " << std::getenv("RANK") << "\n"; }
COHORT_WORKER(throws_on_rank_1) {
  if (std::string(std::getenv("RANK")) == "1") throw std::runtime_error("rank 1 gives up");
}
COHORT_WORKER(sleeps) {
  std::cout << "ready\n";
  for (;;) ::pause();
}

TEST(RankProcesses, ReturnsOutputOfEachRank) {
  const test::WorkerResults results = test::run_workers("prints_rank", {.world_size = 3});
  results.expect_success();
  EXPECT_EQ(results[2].output, "rank 2\n");
}

TEST(RankProcesses, ExceptionEndsWithOneAndItsText) {
  const test::WorkerResults results = test::run_workers("throws_on_rank_1");
  EXPECT_EQ(results[0].exit_code, 0);
  EXPECT_EQ(results[1].exit_code, 1);
  EXPECT_EQ(results[1].errors, "rank 1 gives up\n");
}

TEST(RankProcesses, KilledRankShowsItsSignal) {
  test::Workers workers("sleeps", {.world_size = 2});
  workers.wait_for_output(0, "ready");
  workers.wait_for_output(1, "ready");
  workers.signal(0, SIGKILL);
  workers.signal(1, SIGTERM);
  const test::WorkerResults results = workers.wait();
  EXPECT_EQ(results[0].exit_code, -SIGKILL);
  EXPECT_EQ(results[1].exit_code, -SIGTERM);
  EXPECT_FALSE(results[0].timed_out);
}

TEST(RankProcesses, TimeLimitKillsAndSaysSo) {
  const test::WorkerResults results = test::run_workers("sleeps", {.world_size = 1, .time_limit = 1s});
  EXPECT_TRUE(results[0].timed_out);
  EXPECT_EQ(results[0].exit_code, -SIGKILL);
  EXPECT_EQ(results[0].output, "ready\n");
}

}  // namespace
}  // namespace cohort::base
