// spawn(..., join = false): what its context does beyond what spawn_parity_test.py compares with PyTorch.
#include "cohort/comm/process/process_context.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <iostream>
#include <sstream>
#include <thread>

#include "cohort/comm/process/spawn.h"
#include "tests/support/rank_processes.h"
#include "tests/support/require.h"
#include "tests/support/wait_until_gone.h"

namespace cohort {
namespace {

using test::run_workers;
using namespace std::chrono_literals;

bool process_exists(int pid) { return kill(pid, 0) == 0; }

void pause_for_ever(int) {
  while (true) pause();
}

COHORT_WORKER(context_destroyed) {
  std::vector<int> pids;
  {
    auto context = spawn(pause_for_ever, 3, /*join=*/false);
    pids = context.pids();
    REQUIRE(pids.size() == 3);
    REQUIRE(!context.join(0ms));
    auto moved = std::move(context);
    REQUIRE(context.pids().empty() && context.join());
    REQUIRE(moved.pids() == pids && process_exists(pids[2]));
  }
  for (const int pid : pids) REQUIRE(!process_exists(pid));
}

TEST(ProcessContext, DestructorLeavesNoProcess) {
  const auto results = run_workers("context_destroyed", {.world_size = 1});
  results.expect_success();
  EXPECT_THAT(results[0].errors,
              testing::ContainsRegex("^\\[cohort\\] warning: Terminating process [0-9]+ via signal SIGTERM\n"));
}

COHORT_WORKER(context_assigned) {
  auto context = spawn(pause_for_ever, 1, false);
  const int first = context.pids()[0];
  context = spawn(pause_for_ever, 1, false);
  REQUIRE(!process_exists(first));
  REQUIRE(process_exists(context.pids()[0]));
  ProcessContext none;
  REQUIRE(none.pids().empty() && none.join());
}

TEST(ProcessContext, AssignmentEndsTheOldRanks) { run_workers("context_assigned", {.world_size = 1}).expect_success(); }

COHORT_WORKER(context_joined) {
  auto context = spawn([](int) {}, 2, /*join=*/true);
  REQUIRE(context.join(0ms));
  for (const int pid : context.pids()) REQUIRE(!process_exists(pid));
}

TEST(ProcessContext, IsDoneWhenSpawnHasJoined) { run_workers("context_joined", {.world_size = 1}).expect_success(); }

COHORT_WORKER(context_without_sigchld) {
  signal(SIGCHLD, SIG_IGN);
  auto context = spawn([](int) { _exit(3); }, 1, false);
  try {
    context.join();
  } catch (const ProcessExitedError& error) {
    std::cout << error.what() << "\n" << std::flush;
  }
}

TEST(ProcessContext, LearnsOfEndsThoughSigchldWasIgnored) {
  const auto results = run_workers("context_without_sigchld", {.world_size = 1});
  EXPECT_EQ(results[0].output, "process 0 terminated with exit code 3\n");
}

// The parent of a rank that is killed while ranks run leaves nobody behind, threads or not.
COHORT_WORKER(context_parent) {
  const auto leave_and_pause = [](int rank) {
    setsid();  // or they would end with the session of their parent, which Workers kills
    pause_for_ever(rank);
  };
  auto context = spawn(leave_and_pause, 2, false);
  std::jthread other([] { std::this_thread::sleep_for(1h); });
  const auto pids = context.pids();
  for (const int pid : pids) {
    while (getsid(pid) != pid) std::this_thread::yield();
  }
  std::cout << pids[0] << " " << pids[1] << "\n" << std::flush;
  pause_for_ever(0);
}

TEST(ProcessContext, NoRankOutlivesAKilledParent) {
  test::Workers workers("context_parent", {.world_size = 1});
  workers.wait_for_output(0, "\n");
  workers.signal(0, SIGKILL);
  std::istringstream pids(workers.wait()[0].output);
  int pid = 0;
  int count = 0;
  for (; pids >> pid; ++count) {
    const bool is_gone = test::wait_until_gone(pid);
    EXPECT_TRUE(is_gone) << pid;
    if (!is_gone) kill(pid, SIGKILL);
  }
  EXPECT_EQ(count, 2);
}

COHORT_WORKER(context_in_a_fork) {
  auto first = spawn(pause_for_ever, 1, false);
  const int parent = getpid();
  spawn([&](int) {
    std::string text;
    try {
      first.join();
    } catch (const std::logic_error& error) {
      text = error.what();
    }
    REQUIRE_EQUAL(text, "[cohort] join() of a ProcessContext in process " + std::to_string(getpid()) +
                            ": its ranks belong to process " + std::to_string(parent) + ", which called spawn");
    const auto destroyed_here = std::move(first);
  });
  REQUIRE(process_exists(first.pids()[0]));
  REQUIRE(!first.join(0ms));
}

TEST(ProcessContext, AForkNeitherJoinsNorEndsTheRanksMessage) {
  run_workers("context_in_a_fork", {.world_size = 1}).expect_success();
}

// A rank's child holds its end of the pipe for errors: nobody waits for it.
COHORT_WORKER(context_grandchild) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  auto context = spawn(
      [&](int) {
        const int child = fork();
        if (child == 0) {
          // The runner waits for whoever holds the output; this one waits for the end of the worker.
          for (const int fd : {1, 2, ends[1]}) close(fd);
          char byte = 0;
          _exit(static_cast<int>(read(ends[0], &byte, 1)));
        }
        raise(SIGKILL);
      },
      1, false);
  try {
    context.join();
  } catch (const ProcessExitedError& error) {
    std::cout << error.what() << ", " << error.exit_code << ", " << error.signal_name << "\n" << std::flush;
  }
}

TEST(ProcessContext, ADeadRanksChildHoldsNobodyUp) {
  const auto results = run_workers("context_grandchild", {.world_size = 1});
  results.expect_success();
  EXPECT_EQ(results[0].output, "process 0 terminated with signal SIGKILL, -9, SIGKILL\n");
}

}  // namespace
}  // namespace cohort
