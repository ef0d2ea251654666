// Ranks that differ, come late, stop or die: each ends in bounded time with an error that names the rank.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <random>
#include <thread>

#include "cohort/base/system/env.h"
#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/collectives/point_to_point.h"
#include "cohort/comm/group/process_group.h"
#include "cohort/comm/group/subgroups.h"
#include "tests/support/rank_processes.h"
#include "tests/support/require.h"

namespace cohort {
namespace {

using test::print_error;
using test::process_regex;
using test::run_workers;
using test::worker_arguments;
using testing::MatchesRegex;

// For the operation that is to time out; groups start with the usual time.
constexpr std::chrono::milliseconds kShort{1500};
// Gloo's receives keep the time that their group has started with.
constexpr std::chrono::seconds kOfReceives{12};

constexpr const char* kAgreeHint =
    "  hint: every rank of the group must call the same collectives in the same order, with the same shapes, dtypes "
    "and "
    "roots; TORCH_DISTRIBUTED_DEBUG=DETAIL checks each call before it starts\n";

std::string mismatch(int rank, const std::string& mine, const std::string& theirs, const std::string& head) {
  return "\\[cohort\\] " + head + " on group \"default_pg\" failed\n  rank " + std::to_string(rank) +
         " of 2 on [^ ]+, backend gloo, [^\n]*\n"
         "  caused by: Detected mismatch between collectives on ranks: " +
         mine + " on " + process_regex(rank) + ", but " + theirs + " on " + process_regex(1 - rank) +
         "\n(  caused by: [^\n]*\n)?" + kAgreeHint;
}

COHORT_WORKER(different_operations) {
  init_process_group("gloo");
  auto tensor = at::ones({4});
  all_reduce(tensor);
  print_error([&] {
    if (get_rank() == 0) {
      all_reduce(tensor);
    } else {
      broadcast(tensor, 0);
      barrier();
    }
  });
}

TEST(Failures, DifferentOperationsMessage) {
  const auto results = run_workers("different_operations");
  results.expect_success();
  EXPECT_THAT(results[0].output, MatchesRegex(mismatch(0, "#2 is all_reduce\\(SUM, float32 \\[4\\]\\)",
                                                       "broadcast\\(root 0, float32 \\[4\\]\\)", "all_reduce #2")));
  EXPECT_THAT(results[1].output, MatchesRegex(mismatch(1, "#2 is broadcast\\(root 0, float32 \\[4\\]\\)",
                                                       "all_reduce\\(SUM, float32 \\[4\\]\\)", "broadcast #2")));
}

COHORT_WORKER(different_roots) {
  init_process_group("gloo");
  auto tensor = at::ones({4});
  print_error([&] { broadcast(tensor, 1 - get_rank()); });
}

TEST(Failures, DifferentRootsMessage) {
  const auto results = run_workers("different_roots");
  results.expect_success();
  EXPECT_THAT(results[0].output, MatchesRegex(mismatch(0, "#1 is broadcast\\(root 1, float32 \\[4\\]\\)",
                                                       "broadcast\\(root 0, float32 \\[4\\]\\)", "broadcast #1")));
}

COHORT_WORKER(different_shapes) {
  init_process_group("gloo");
  const auto shape = get_rank() == 0 ? std::vector<int64_t>{4, 2} : std::vector<int64_t>{5};
  auto tensor = at::ones(shape);
  print_error([&] { all_reduce(tensor); });
}

TEST(Failures, DifferentShapesMessage) {
  const auto results = run_workers("different_shapes", {.loads_anew = true});
  // Rank 1 meets data that does not fit in a thread of Gloo's own, which ends the process while it leaves.
  EXPECT_NE(results[1].exit_code, -SIGKILL);
  EXPECT_THAT(
      results[1].errors,
      testing::ContainsRegex("\\[rank1\\]: \\[cohort\\] all_reduce #1 on group \"default_pg\" failed\n"
                             "\\[rank1\\]:   rank 1 of 2 on [^ ]+, backend gloo, 20 B float32\n"
                             "\\[rank1\\]:   caused by: Detected mismatch between collectives on ranks: #1 is "
                             "all_reduce\\(SUM, float32 \\[5\\]\\) on " +
                             process_regex(1) + ", but all_reduce\\(SUM, float32 \\[4, 2\\]\\) on " + process_regex(0) +
                             "\n\\[rank1\\]:   caused by: gloo::EnforceNotMet: [^\n]*\n\\[rank1\\]: " + kAgreeHint));
  EXPECT_THAT(results[0].output, MatchesRegex(mismatch(0, "#1 is all_reduce\\(SUM, float32 \\[4, 2\\]\\)",
                                                       "all_reduce\\(SUM, float32 \\[5\\]\\)", "all_reduce #1")));
}

COHORT_WORKER(different_dtypes) {
  init_process_group("gloo");
  auto tensor = at::ones({1 << 16}, get_rank() == 0 ? at::kFloat : at::kDouble);
  print_error([&] { all_reduce(tensor); });
}

// Rank 0 meets data that does not fit, which ends it, and the store with it. On a busy machine rank 1 may learn only then.
TEST(Failures, DifferentDtypesMessage) {
  const auto results = run_workers("different_dtypes", {.loads_anew = true});
  EXPECT_THAT(results[0].errors,
              testing::ContainsRegex("caused by: Detected mismatch between collectives on ranks: #1 is "
                                     "all_reduce\\(SUM, float32 \\[65536\\]\\) on " +
                                     process_regex(0) + ", but all_reduce\\(SUM, float64 \\[65536\\]\\) on " +
                                     process_regex(1)));
  const std::string rank_0_is_gone =
      "\\[cohort\\] all_reduce #1 on group \"default_pg\" failed\n  rank 1 of 2 on [^ ]+, backend gloo, [^\n]*\n"
      "  caused by: " +
      process_regex(0) + " is gone\n  caused by: [^\n]*\n  hint: look at the output of rank 0 for the reason\n";
  EXPECT_THAT(results[1].output,
              testing::AnyOf(MatchesRegex(mismatch(1, "#1 is all_reduce\\(SUM, float64 \\[65536\\]\\)",
                                                   "all_reduce\\(SUM, float32 \\[65536\\]\\)", "all_reduce #1")),
                             MatchesRegex(rank_0_is_gone)));
}

COHORT_WORKER(detail) {
  init_process_group("gloo");
  auto tensor = at::ones({4});
  all_reduce(tensor);
  REQUIRE(tensor[0].item<float>() == get_world_size());
  auto output = at::empty({4LL * get_world_size()});
  all_gather_single(output, tensor);
  barrier();
  const auto other = group_rank((get_rank() + 1) % 2);
  const auto sending = isend(tensor, other);
  auto received = at::empty({4});
  recv(received, other);
  sending->wait();
  const auto case_name = test::worker_arguments()[0];
  const bool first = get_rank() == 0;
  print_error([&] {
    if (case_name == "root") broadcast(tensor, get_rank());
    if (case_name == "reduce_op") all_reduce(tensor, {.op = first ? ReduceOp::SUM : ReduceOp::MAX});
    if (case_name == "shape") all_reduce(first ? tensor : at::ones({5}));
    if (case_name == "operation") first ? all_reduce(tensor) : broadcast(tensor, 0);
  });
}

std::string detail_output(const char* case_name, int rank) {
  const auto results =
      run_workers("detail", {.environment = {{"TORCH_DISTRIBUTED_DEBUG", "DETAIL"}}, .arguments = {case_name}});
  results.expect_success();
  return results[rank].output;
}

TEST(Failures, DetailChecksRootsMessage) {
  EXPECT_THAT(detail_output("root", 0),
              MatchesRegex(mismatch(0, "#4 is broadcast\\(root 0, float32 \\[4\\]\\)",
                                    "broadcast\\(root 1, float32 \\[4\\]\\)", "broadcast #4")));
}

TEST(Failures, DetailChecksReduceOperationsMessage) {
  EXPECT_THAT(detail_output("reduce_op", 1),
              MatchesRegex(mismatch(1, "#4 is all_reduce\\(MAX, float32 \\[4\\]\\)",
                                    "all_reduce\\(SUM, float32 \\[4\\]\\)", "all_reduce #4")));
}

// Shapes and operations are found by LibTorch's own wrapper, with its text.
TEST(Failures, DetailChecksShapesMessage) {
  EXPECT_THAT(detail_output("shape", 0),
              testing::HasSubstr("Detected mismatch between collectives on ranks. Rank 0 is running collective: "
                                 "CollectiveFingerPrint(SequenceNumber=5, OpType=ALLREDUCE, TensorShape=[4], "
                                 "TensorDtypes=Float, TensorDeviceTypes=TensorOptions("));
}

TEST(Failures, DetailChecksOperationsMessage) {
  EXPECT_THAT(detail_output("operation", 0), testing::HasSubstr("but Rank 1 is running collective: "
                                                                "CollectiveFingerPrint(SequenceNumber=5, "
                                                                "OpType=BROADCAST, TensorShape=[4]"));
}

// Rank 1 computes for longer than rank 0 waits.
COHORT_WORKER(skewed_speeds) {
  init_process_group("gloo");
  auto tensor = at::ones({4});
  all_reduce(tensor);
  set_pg_timeout(kShort);
  if (get_rank() == 1) {
    volatile double x = 1;
    while (!test::is_done(0)) x = x * 1.0000001;
  }
  print_error([&] { all_reduce(tensor); });
}

TEST(Failures, SkewedSpeedsAreToldFromALostRankMessage) {
  const auto results = run_workers("skewed_speeds");
  results.expect_success();
  EXPECT_THAT(results[0].output,
              MatchesRegex("\\[cohort\\] all_reduce #2 on group \"default_pg\" failed\n"
                           "  rank 0 of 2 on [^ ]+, backend gloo, 16 B float32\n"
                           "  caused by: no answer from the other ranks within the group's timeout of 1.5 s\n"
                           "  caused by: " +
                           process_regex(1) +
                           " has not arrived: it is computing\n"
                           "  caused by: [^\n]*\n"
                           "  hint: the ranks run at different speeds, but none is lost; raise the timeout of "
                           "init_process_group \\(of new_group for a subgroup\\), now 1.5 s\n"));
  EXPECT_THAT(results[1].output,
              MatchesRegex(
                  "\\[cohort\\] all_reduce #2 on group \"default_pg\" failed\n"
                  "  rank 1 of 2 on [^ ]+, backend gloo, 16 B float32\n"
                  "  caused by: " +
                  process_regex(0) +
                  " gave up in all_reduce #2 on group \"default_pg\": no answer from the other ranks within the "
                  "group's timeout of 1.5 s\n"
                  "  caused by: [^\n]*\n"
                  "  hint: the ranks run at different speeds, but none is lost: this one came to all_reduce later than "
                  "the other waits; raise the timeout of init_process_group \\(of new_group for a subgroup\\), "
                  "now 1.5 s\n"));
}

// Two groups, used in another order: each rank waits for the other in another group.
COHORT_WORKER(crossed_groups) {
  init_process_group("gloo");
  const auto a = new_group({}, {.group_desc = "a"});
  const auto b = new_group({}, {.group_desc = "b"});
  for (const auto& group : {a, b}) set_pg_timeout(std::chrono::seconds(4), group);
  auto tensor = at::ones({4});
  barrier();  // each is told where the other one waits only if they begin at much the same time
  print_error([&] { all_reduce(tensor, {.group = get_rank() == 0 ? a : b}); });
}

TEST(Failures, WaitingInAnotherGroupIsSaidMessage) {
  const auto results = run_workers("crossed_groups");
  results.expect_success();
  EXPECT_THAT(results[0].output + results[1].output,
              testing::ContainsRegex("rank [01] \\(pid [0-9]+ on [^ ]+\\)"
                                     " has not arrived: it waits in all_reduce\\(SUM, float32 \\[4\\]\\) #1 on group "
                                     "\"[ab]\"\n"));
}

COHORT_WORKER(receives_in_vain) {
  init_process_group({.backend = "gloo", .timeout = kOfReceives});
  auto tensor = at::ones({4});
  if (get_rank() == 0) print_error([&] { recv(tensor, 1); });
  while (get_rank() != 0 && !test::is_done(0)) std::this_thread::sleep_for(std::chrono::milliseconds(300));
}

TEST(Failures, ReceiveNamesTheRankThatSentNothingMessage) {
  const auto results = run_workers("receives_in_vain", {.world_size = 3});
  EXPECT_THAT(results[0].output,
              MatchesRegex("\\[cohort\\] recv #1 on group \"default_pg\" failed\n"
                           "  rank 0 of 3 on [^ ]+, backend gloo, 16 B float32\n"
                           "  caused by: no answer from the other ranks within the group's timeout of 12.0 s\n"
                           "  caused by: " +
                           process_regex(1) +
                           " has not arrived: it is asleep\n"
                           "  caused by: [^\n]*\n"
                           "  hint: see why that rank did not reach this operation; if it is only slow, raise "
                           "the timeout of init_process_group \\(of new_group for a subgroup\\), now 12.0 s\n"));
}

COHORT_WORKER(monitored) {
  init_process_group("gloo");
  monitored_barrier();
  const auto wait = std::chrono::milliseconds(2500);
  if (get_rank() == 0) {
    print_error([&] { monitored_barrier({.timeout = wait, .wait_all_ranks = true}); });
  } else if (get_rank() == 3) {
    print_error([&] { monitored_barrier({.timeout = wait}); });
  } else {
    while (!test::is_done(0)) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

TEST(Failures, MonitoredBarrierNamesTheMissingRanksMessage) {
  const auto results = run_workers("monitored", {.world_size = 4});
  EXPECT_THAT(results[0].output, testing::HasSubstr("Ranks 1, 2 failed to pass monitoredBarrier in 2500 ms"));
  EXPECT_THAT(results[3].output,
              testing::HasSubstr("Rank 3 successfully reached monitoredBarrier, but received errors while waiting for "
                                 "send/recv from rank 0. Please check rank 0 logs for faulty rank."));
}

// All ranks work on the backend of the first argument, with the timeout of the second, in seconds; at a random moment one is
// killed, stopped or held back.
COHORT_WORKER(random_work) {
  init_process_group(
      {.backend = worker_arguments().at(0), .timeout = std::chrono::seconds(std::stoi(worker_arguments().at(1)))});
  const int rank = get_rank();
  const int next = (rank + 1) % 3;
  const int previous = (rank + 2) % 3;
  std::cout << "working\n" << std::flush;
  print_error([&] {
    auto tensor = at::ones({1 << 14});
    auto received = at::empty({1 << 14});
    auto all = at::empty({3 << 14});
    for (;;) {
      all_reduce(tensor);
      tensor.fill_(1);
      broadcast(tensor, 1);
      const auto sending = isend(tensor, next);
      recv(received, previous);
      sending->wait();
      all_gather_single(all, tensor);
    }
  });
}

void disturb(const std::string& backend, int signal, unsigned seed) {
  std::mt19937 random(seed);
  // Who is stopped is found by the timeout alone.
  const auto timeout = std::to_string(signal == SIGSTOP ? kOfReceives.count() : 100);
  test::Workers workers("random_work", {.world_size = 3, .arguments = {backend, timeout}});
  for (int rank = 0; rank < 3; ++rank) workers.wait_for_output(rank, "working");
  const int victim = static_cast<int>(random() % 3);
  std::this_thread::sleep_for(std::chrono::microseconds(random() % 100000));
  workers.signal(victim, signal);
  for (int rank = 0; rank < 3; ++rank) {
    if (rank != victim) workers.wait_for_output(rank, "  hint: ");
  }
  if (signal == SIGSTOP) workers.signal(victim, SIGKILL);
  const auto results = workers.wait();
  std::string told;
  for (int rank = 0; rank < 3; ++rank) {
    if (rank == victim) continue;
    EXPECT_FALSE(results[rank].timed_out) << "rank " << rank;
    told += results[rank].output;
  }
  EXPECT_THAT(told, testing::ContainsRegex(process_regex(victim))) << "victim " << victim << ", seed " << seed;
}

TEST(Failures, KilledAtRandomMomentsIsNamed) {
  for (unsigned seed = 1; seed <= 3; ++seed) disturb("gloo", SIGKILL, seed);
}

// COHORT_STRESS_RUNS: so many instead of 4.
TEST(Failures, KilledAtRandomMomentsIsNamedInSharedMemory) {
  const auto num_runs = base::env_int("COHORT_STRESS_RUNS", 1).value().value_or(4);
  for (unsigned seed = 1; seed <= num_runs; ++seed) disturb("shm", SIGKILL, seed);
}

TEST(Failures, StoppedAtARandomMomentIsNamed) {
  disturb("gloo", SIGSTOP, 4);
  disturb("shm", SIGSTOP, 5);
}

}  // namespace
}  // namespace cohort
