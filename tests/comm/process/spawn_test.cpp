#include "cohort/comm/process/spawn.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <thread>

#include "cohort/comm/collectives/collectives.h"
#include "tests/support/rank_processes.h"

namespace cohort {
namespace {

using test::run_workers;
using testing::HasSubstr;
using testing::StartsWith;

// spawn forks, so each test runs in a fresh process without gtest's state or LibTorch's threads.
std::string port() { return getenv("MASTER_PORT"); }

COHORT_WORKER(spawn_trains) {
  const std::string greeting = "captured";
  spawn(
      [&](int rank) {
        init_process_group({.init_method = "tcp://127.0.0.1:" + port(), .world_size = 3, .rank = rank});
        auto tensor = at::full({1}, rank);
        all_reduce(tensor);
        if (tensor.item<int64_t>() != 3 || greeting != "captured") throw std::runtime_error("wrong sum");
        if (rank == 2) std::cout << "sum is right\n" << std::flush;
      },
      3);
}

TEST(Spawn, RunsRanksThatCommunicate) {
  const auto results = run_workers("spawn_trains", {.world_size = 1});
  results.expect_success();
  EXPECT_EQ(results[0].output, "sum is right\n");
}

void print_failure(const std::function<void(int)>& fn, int nprocs) {
  try {
    spawn(fn, nprocs);
    std::cout << "no error\n" << std::flush;
  } catch (const ProcessRaisedError& error) {
    std::cout << "raised " << error.error_index << ":" << error.what() << "\n" << std::flush;
  } catch (const ProcessExitedError& error) {
    std::cout << "exited " << error.error_index << " (" << error.exit_code << "): " << error.what() << "\n"
              << std::flush;
  } catch (const std::exception& error) {
    std::cout << "other: " << error.what() << "\n" << std::flush;
  }
}

COHORT_WORKER(spawn_raises) {
  print_failure(
      [](int rank) {
        if (rank == 1) throw std::runtime_error("no more data");
        pause();
      },
      3);
}

TEST(Spawn, FirstExceptionEndsTheOthersMessage) {
  const auto results = run_workers("spawn_raises", {.world_size = 1});
  EXPECT_EQ(results[0].output, "raised 1:\n\n-- Process 1 terminated with the following error:\nno more data\n");
}

COHORT_WORKER(spawn_killed) {
  print_failure([](int rank) { rank == 0 ? void(raise(SIGKILL)) : void(pause()); }, 2);
}

TEST(Spawn, SignalIsNamedMessage) {
  EXPECT_EQ(run_workers("spawn_killed", {.world_size = 1})[0].output,
            "exited 0 (-9): process 0 terminated with signal SIGKILL\n");
}

COHORT_WORKER(spawn_exits) {
  print_failure([](int rank) { rank == 1 ? _exit(3) : void(pause()); }, 2);
}

TEST(Spawn, ExitCodeIsNamedMessage) {
  EXPECT_EQ(run_workers("spawn_exits", {.world_size = 1})[0].output,
            "exited 1 (3): process 1 terminated with exit code 3\n");
}

COHORT_WORKER(spawn_with_threads) {
  std::jthread other([](std::stop_token stop) {
    while (!stop.stop_requested()) std::this_thread::yield();
  });
  print_failure([](int) {}, 1);
}

TEST(Spawn, RefusesAProcessWithThreadsMessage) {
  EXPECT_THAT(
      run_workers("spawn_with_threads", {.world_size = 1})[0].output,
      StartsWith("other: [cohort] spawn must be called before the process starts threads, but 1 run already: \""));
}

TEST(Spawn, RefusesNoProcesses) {
  EXPECT_THROW(spawn([](int) {}, 0), std::invalid_argument);
}

COHORT_WORKER(spawn_parent) {
  spawn(
      [](int rank) {
        setsid();  // or it would end with the session of its parent, which Workers kills
        if (rank == 0) std::cout << "child " << getpid() << "\n" << std::flush;
        pause();
      },
      1);
}

TEST(Spawn, NoRankOutlivesAKilledParent) {
  test::Workers workers("spawn_parent", {.world_size = 1});
  workers.wait_for_output(0, "\n");
  workers.signal(0, SIGKILL);
  const auto results = workers.wait();
  const int child = std::stoi(results[0].output.substr(6));
  for (int i = 0; i < 20'000 && kill(child, 0) == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const bool still_runs = kill(child, 0) == 0;
  EXPECT_FALSE(still_runs) << "pid " << child;
  if (still_runs) kill(child, SIGKILL);
}

}  // namespace
}  // namespace cohort
