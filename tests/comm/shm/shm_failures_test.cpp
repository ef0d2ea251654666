// Ranks of the backend "shm" that differ, come late, stop or die: full texts. Ranks are processes.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <thread>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/collectives/point_to_point.h"
#include "cohort/comm/group/process_group.h"
#include "cohort/comm/group/subgroups.h"
#include "tests/support/rank_processes.h"
#include "tests/support/require.h"
#include "tests/support/temporary_folder.h"

namespace cohort {
namespace {

using test::print_error;
using test::process_regex;
using test::run_workers;
using testing::HasSubstr;
using testing::MatchesRegex;

// For the operation that is to time out; groups start with the usual time.
constexpr std::chrono::milliseconds kShort{1500};

constexpr const char* kRaise = "raise the timeout of init_process_group \\(of new_group for a subgroup\\), now 1.5 s\n";

std::string head(const std::string& operation, int rank, int size, const std::string& what) {
  return "\\[cohort\\] " + operation + " on group \"default_pg\" failed\n  rank " + std::to_string(rank) + " of " +
         std::to_string(size) + " on [^ ]+, backend shm" + what + "\n";
}

COHORT_WORKER(shm_different_operations) {
  init_process_group("shm");
  auto tensor = at::ones({4});
  all_reduce(tensor);
  print_error([&] {
    if (get_rank() == 0) {
      all_reduce(tensor);
    } else {
      broadcast(tensor, 0);
    }
  });
  print_error([&] { barrier(); });
}

TEST(ShmFailures, DifferentOperationsMessage) {
  const auto results = run_workers("shm_different_operations", {.world_size = 3});
  results.expect_success();
  const std::string table =
      "  caused by: rank 0 calls all_reduce\\(SUM\\) of 4 float32\n"
      "  caused by: ranks 1 and 2 call broadcast from rank 0 of 4 float32\n"
      "  hint: make every rank call the same operation with the same shapes, dtypes and roots, in the same order\n";
  const std::string again = "  caused by: the group has failed before and takes no more operations\n" + table;
  EXPECT_THAT(results[0].output, MatchesRegex(head("all_reduce #2", 0, 3, ", 16 B float32") + table +
                                              head("barrier #3", 0, 3, "") + again));
  EXPECT_THAT(results[2].output, MatchesRegex(head("broadcast #2", 2, 3, ", 16 B float32") + table +
                                              head("barrier #3", 2, 3, "") + again));
}

COHORT_WORKER(shm_waits_for_the_dead) {
  init_process_group("shm");
  barrier();
  std::cout << "ready\n" << std::flush;
  if (get_rank() == 1) std::this_thread::sleep_for(std::chrono::minutes(1));
  print_error([] { all_reduce(at::ones({4})); });
}

TEST(ShmFailures, KilledRankIsNamedMessage) {
  test::Workers workers("shm_waits_for_the_dead", {.world_size = 3});
  for (int rank = 0; rank < 3; ++rank) workers.wait_for_output(rank, "ready");
  workers.signal(1, SIGKILL);
  const auto results = workers.wait();
  for (const int rank : {0, 2}) {
    EXPECT_THAT(results[rank].output, MatchesRegex("ready\n" + head("all_reduce #2", rank, 3, ", 16 B float32") +
                                                   "  caused by: " + process_regex(1) +
                                                   " (was killed by signal 9 \\(SIGKILL\\)|has ended)\n"
                                                   "  hint: look at the output of rank 1 for the reason\n"));
  }
}

// Rank 1 computes for longer than rank 0 waits.
COHORT_WORKER(shm_skewed_speeds) {
  init_process_group("shm");
  auto tensor = at::ones({4});
  all_reduce(tensor);
  set_pg_timeout(kShort);
  if (get_rank() == 1) {
    volatile double x = 1;
    while (!test::is_done(0)) x = x * 1.0000001;
  }
  print_error([&] { all_reduce(tensor); });
}

TEST(ShmFailures, SkewedSpeedsAreToldFromALostRankMessage) {
  const auto results = run_workers("shm_skewed_speeds");
  results.expect_success();
  EXPECT_THAT(results[0].output,
              MatchesRegex(head("all_reduce #2", 0, 2, ", 16 B float32") + "  caused by: " + process_regex(1) +
                           " has not arrived within 1.5 s: it is computing\n"
                           "  hint: the ranks run at different speeds, but none is lost; " +
                           kRaise));
  EXPECT_THAT(results[1].output, MatchesRegex(head("all_reduce #2", 1, 2, ", 16 B float32") + "  caused by: " +
                                              process_regex(0) + " failed first: " + process_regex(1) +
                                              " has not arrived within 1.5 s\n(  hint: [^\n]*\n)?"));
}

// Rank 0 hosts the store, which nobody may ask then.
COHORT_WORKER(shm_waits_for_the_stopped) {
  init_process_group("shm");
  barrier();
  set_pg_timeout(kShort);
  if (get_rank() == 0) raise(SIGSTOP);
  print_error([] { all_reduce(at::ones({4})); });
}

TEST(ShmFailures, StoppedRankIsNamedMessage) {
  test::Workers workers("shm_waits_for_the_stopped", {});
  workers.wait_for_output(1, "  hint: ");
  workers.signal(0, SIGKILL);
  const auto results = workers.wait();
  EXPECT_THAT(results[1].output,
              MatchesRegex(head("all_reduce #2", 1, 2, ", 16 B float32") + "  caused by: " + process_regex(0) +
                           " has not arrived within 1.5 s: it is stopped \\(SIGSTOP or a debugger\\)\n"
                           "  hint: continue the stopped rank \\(kill -CONT PID\\), or end it\n"));
}

// Two groups, used in another order: each rank waits for the other in another group.
COHORT_WORKER(shm_crossed_groups) {
  init_process_group("shm");
  const auto a = new_group({}, {.group_desc = "a"});
  const auto b = new_group({}, {.group_desc = "b"});
  for (const auto& group : {a, b}) set_pg_timeout(std::chrono::seconds(4), group);
  auto tensor = at::ones({4});
  barrier();  // each is told where the other one waits only if they begin at much the same time
  print_error([&] { all_reduce(tensor, {.group = get_rank() == 0 ? a : b}); });
  barrier();  // nobody leaves while the other one still waits
}

TEST(ShmFailures, WaitingInAnotherGroupIsSaidOnceMessage) {
  const auto results = run_workers("shm_crossed_groups");
  results.expect_success();
  for (int rank = 0; rank < 2; ++rank) {
    const std::string mine = rank == 0 ? "a" : "b";
    const std::string theirs = rank == 0 ? "b" : "a";
    EXPECT_THAT(
        results[rank].output,
        MatchesRegex("\\[cohort\\] all_reduce #1 on group \"" + mine + "\" failed\n  rank " + std::to_string(rank) +
                     " of 2 on [^ ]+, backend shm, 16 B float32\n  caused by: " + process_regex(1 - rank) +
                     " has not arrived within 4.0 s: it waits in all_reduce\\(SUM, float32 \\[4\\]\\) #1 on group \"" +
                     theirs +
                     "\"\n  hint: see why that rank did not reach this operation; if it is only slow, raise "
                     "the timeout of init_process_group \\(of new_group for a subgroup\\), now 4.0 s\n"));
  }
}

COHORT_WORKER(shm_receives_in_vain) {
  init_process_group("shm");
  set_pg_timeout(kShort);
  auto tensor = at::ones({4});
  if (get_rank() == 0) print_error([&] { recv(tensor, 1, {.tag = 3}); });
  while (get_rank() != 0 && !test::is_done(0)) std::this_thread::sleep_for(std::chrono::milliseconds(300));
}

TEST(ShmFailures, ReceiveNamesTheRankThatSentNothingMessage) {
  const auto results = run_workers("shm_receives_in_vain");
  EXPECT_THAT(results[0].output,
              MatchesRegex(head("recv #1", 0, 2, ", 16 B float32") + "  caused by: " + process_regex(1) +
                           " has not answered: it is asleep\n"
                           "  caused by: rank 1 sent nothing with tag 3 to rank 0 within 1.5 s\n"
                           "  hint: see why that rank did not reach this operation; if it is only "
                           "slow, raise the timeout of init_process_group \\(of new_group for a "
                           "subgroup\\), now 1.5 s\n"));
}

COHORT_WORKER(shm_monitored) {
  init_process_group("shm");
  monitored_barrier();
  const auto wait = std::chrono::milliseconds(2500);
  if (get_rank() == 0) {
    print_error([&] { monitored_barrier({.timeout = wait, .wait_all_ranks = true}); });
  } else if (get_rank() == 3) {
    print_error([&] { monitored_barrier({.timeout = wait}); });
  } else {
    std::this_thread::sleep_for(wait * 2);
    print_error([&] { monitored_barrier({.timeout = wait}); });
  }
  // The group has not suffered.
  monitored_barrier();
  auto tensor = at::ones({4});
  all_reduce(tensor);
  REQUIRE(tensor[0].item<float>() == 4);
}

TEST(ShmFailures, MonitoredBarrierNamesTheMissingRanksMessage) {
  const auto results = run_workers("shm_monitored", {.world_size = 4});
  results.expect_success();
  EXPECT_EQ(results[0].output, "[Rank 0]: Ranks 1, 2 failed to pass monitoredBarrier in 2500 ms\n");
  for (const int rank : {1, 2, 3}) {
    EXPECT_EQ(
        results[rank].output,
        "Rank " + std::to_string(rank) +
            " successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0. "
            "Please check rank 0 logs for faulty rank.\n"
            " Original exception: \nrank 0 did not see every rank in time\n");
  }
}

COHORT_WORKER(shm_monitored_first) {
  init_process_group("shm");
  if (get_rank() == 0) print_error([] { monitored_barrier({.timeout = std::chrono::milliseconds(300)}); });
  barrier();
}

TEST(ShmFailures, MonitoredBarrierNamesTheFirstMissingRankMessage) {
  const auto results = run_workers("shm_monitored_first", {.world_size = 3});
  results.expect_success();
  EXPECT_EQ(
      results[0].output,
      "[Rank 0]: Rank 1 failed to pass monitoredBarrier in 300 ms\n Original exception: \nOperation timed out!\n");
}

COHORT_WORKER(shm_monitored_in_no_time) {
  init_process_group("shm");
  if (get_rank() == 0) {
    print_error([] {
      c10d::BarrierOptions options;
      options.timeout = std::chrono::milliseconds(0);
      default_group()->getBackend(c10::DeviceType::CPU)->monitoredBarrier(options, /*wait_all_ranks=*/false);
    });
  }
  barrier();
}

TEST(ShmFailures, MonitoredBarrierWithoutTimeFailsAtOnceMessage) {
  const auto results = run_workers("shm_monitored_in_no_time");
  results.expect_success();
  EXPECT_EQ(results[0].output,
            "[Rank 0]: Rank 0 timed out in monitoredBarrier after 0 ms.\n"
            "No ranks successfully processed in monitoredBarrier.\n");
}

// Ranks 1 and 2 only give. Rank 1 is done long before rank 2 comes, for which rank 0 waits.
COHORT_WORKER(shm_gives_and_leaves) {
  init_process_group("shm");
  auto tensor = at::ones({4});
  all_reduce(tensor);
  const auto come = std::filesystem::path(test::worker_arguments().at(0)) / "come";
  if (get_rank() == 2) {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    std::ofstream(come) << "here";
  }
  reduce(tensor, 0);
  destroy_process_group();
  std::cout << (std::filesystem::exists(come) ? "all have come" : "too early");
}

TEST(ShmFailures, WhoOnlyGivesLeavesWhenAllHaveCome) {
  const test::TemporaryFolder folder;
  const auto results = run_workers("shm_gives_and_leaves", {.world_size = 3, .arguments = {folder.path()}});
  results.expect_success();
  for (const int rank : {0, 1, 2}) EXPECT_EQ(results[rank].output, "all have come");
}

// Of large tensors, and of those in shared memory, ranks wait for each other.
bool do_ranks_wait(int count) { return count > 512 || std::getenv("COHORT_TEST_IN_PLACE"); }

// No rank takes anything by its own account, so where ranks need not wait, rank 0 returns; rank 1 begins then.
COHORT_WORKER(shm_different_roots) {
  init_process_group("shm");
  const auto name = test::worker_arguments().at(0);
  const auto returned = std::filesystem::path(test::worker_arguments().at(1)) / "returned";
  const auto count = std::stoi(test::worker_arguments().at(2));
  const auto tensor = at::full({count}, get_rank() + 1.0);
  const auto result = at::empty({count});
  const int other = 1 - get_rank();
  const bool waits = do_ranks_wait(count);
  while (!waits && get_rank() == 1 && !std::filesystem::exists(returned)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  print_error([&] {
    if (name == "broadcast") broadcast(tensor, get_rank());
    if (name == "reduce") reduce(tensor, other);
    if (name == "gather") gather(tensor, {}, other);
    if (name == "scatter") scatter(result, {tensor, tensor}, get_rank());
  });
  if (get_rank() == 0) std::ofstream(returned) << "yes";
  destroy_process_group();
}

// In the call by the later one, and by the other at the end at the latest. Of large tensors, and in place, by both in the call.
TEST(ShmFailures, DifferentRootsAreFoundInTheCallMessage) {
  for (const std::string name : {"broadcast", "reduce", "gather", "scatter"}) {
    for (const int count : {4, 4096}) {
      SCOPED_TRACE(name + " of " + std::to_string(count));
      const test::TemporaryFolder folder;
      const bool waits = do_ranks_wait(count);
      const auto results =
          run_workers("shm_different_roots", {.arguments = {name, folder.path(), std::to_string(count)}});
      results.expect_success();
      const bool is_to_other = name == "reduce" || name == "gather";
      const auto call = name + (name == "reduce" ? "(SUM)" : "") + (is_to_other ? " to rank " : " from rank ");
      const auto of = " of " + std::to_string(count) + " float32\n";
      const std::string hint =
          "make every rank call the same operation with the same shapes, dtypes and roots, in the same order\n";
      const auto row = [&](int rank) {
        return "rank " + std::to_string(rank) + " calls " + call + std::to_string(is_to_other ? 1 - rank : rank) + of;
      };
      for (const int rank : {0, 1}) {
        const auto& [output, errors] = std::pair(results[rank].output, results[rank].errors);
        if (rank == 1 || waits) {
          EXPECT_THAT(output, HasSubstr("[cohort] " + name + " #1 on group \"default_pg\" failed\n"));
          EXPECT_THAT(output, HasSubstr("  caused by: " + row(0) + "  caused by: " + row(1) + "  hint: " + hint));
          continue;
        }
        EXPECT_EQ(output, "(no error)\n");
        EXPECT_EQ(
            errors,
            "[cohort] warning: the last operations on group \"default_pg\" have not ended well on all ranks\n"
            "the ranks' calls differ since an earlier call, in which not every rank had to wait for the others\n" +
                row(0) + row(1) + hint);
      }
    }
  }
}

// Rank 1 leaves when rank 0 is about its exit: an operation that has failed before is not lost.
COHORT_WORKER(shm_forgets_a_work) {
  init_process_group("shm");
  static WorkPtr work;
  auto tensor = at::ones({4});
  if (get_rank() == 0) work = all_reduce(tensor, {.async_op = true});
  static const std::string sign = test::worker_arguments().at(0) + "/exits";
  if (get_rank() == 0) std::atexit([] { std::ofstream(sign) << "now"; });
  while (get_rank() == 1 && !std::filesystem::exists(sign)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

TEST(ShmFailures, OperationThatNobodyWaitedForIsToldAtExitMessage) {
  const test::TemporaryFolder folder;
  const auto results = run_workers("shm_forgets_a_work", {.arguments = {folder.path()}, .loads_anew = true});
  EXPECT_EQ(results[0].exit_code, 0);
  EXPECT_EQ(results[0].errors,
            "[cohort] warning: exiting with 1 operation(s) that nobody waited for; the process groups are left to the "
            "system. Call wait() on every Work and destroy_process_group() before the program ends.\n");
}

COHORT_WORKER(shm_nan) {
  init_process_group("shm");
  auto tensor = at::ones({4});
  tensor[2] = std::nan("");
  print_error([&] { all_reduce(tensor); });
}

TEST(ShmFailures, NanIsFoundMessage) {
  const auto results = run_workers("shm_nan", {.environment = {{"TORCH_NCCL_NAN_CHECK", "1"}}});
  EXPECT_THAT(results[1].output,
              MatchesRegex(head("all_reduce #1", 1, 2, ", 16 B float32") +
                           "  caused by: 1 of 4 elements is NaN on this rank, the first at index 2\n"
                           "  hint: look for the step that makes NaN, or turn this check off by unsetting "
                           "TORCH_NCCL_NAN_CHECK\n"));
}

COHORT_WORKER(shm_detail) {
  init_process_group("shm");
  auto tensor = at::ones({4});
  all_reduce(tensor);
  REQUIRE(tensor[0].item<float>() == 2);
  barrier();
  print_error([&] { all_reduce(get_rank() == 0 ? tensor : at::ones({5})); });
}

TEST(ShmFailures, DetailChecksBeforeTheCall) {
  const auto results = run_workers("shm_detail", {.environment = {{"TORCH_DISTRIBUTED_DEBUG", "DETAIL"}}});
  results.expect_success();
  EXPECT_THAT(results[0].output, HasSubstr("Detected mismatch between collectives on ranks. Rank 0 is running "
                                           "collective: CollectiveFingerPrint("));
}

}  // namespace
}  // namespace cohort
