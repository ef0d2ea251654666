// Ranks that die or stop while others train: the others end soon, with an error that names that rank.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "cohort/parallel/ddp/distributed_data_parallel.h"
#include "tests/parallel/ddp/nets.h"
#include "tests/support/marks.h"
#include "tests/support/rank_processes.h"
#include "tests/support/rank_threads.h"

BACKEND_OF_FILE(both)

namespace cohort {
namespace {

using testing::MatchesRegex;

// argument 0: "killed" and "stopped" do that to rank 1 inside its own backward pass, "neither" leaves it to the test; or where
// rank 1 throws, "forward" or "backward".
COHORT_WORKER(trains_until_a_rank_is_missing) {
  const auto& fate = test::worker_arguments().at(0);
  init_process_group(test::backend_of_tests().c_str());
  auto net = test::Mlp(256);
  DistributedDataParallel ddp(net);
  if (fate == "stopped") set_pg_timeout(std::chrono::seconds(4));
  try {
    for (int step = 0;; ++step) {
      if (step == 3)
        std::cout << "training"
                  << "\n"
                  << std::flush;
      if (fate == "forward" && step == 5 && get_rank() == 1) (void)ddp(at::ones({4, 9}));
      auto output = ddp(at::ones({4, 8}));
      if (fate == "backward" && step == 5 && get_rank() == 1) {
        output.register_hook([](const at::Tensor&) { throw std::runtime_error("the data of rank 1 are bad"); });
      }
      if ((fate == "killed" || fate == "stopped") && step == 5 && get_rank() == 1) {
        output.register_hook([&](const at::Tensor&) { raise(fate == "killed" ? SIGKILL : SIGSTOP); });
      }
      ddp->zero_grad();
      output.sum().backward();
    }
  } catch (const c10::Error& error) {
    if (get_rank() == 1) throw;
    std::cout << error.what_without_backtrace() << "\n" << std::flush;
  }
}

bool is_shm() { return test::backend_of_tests() == "shm"; }

std::string process(int rank) { return "rank " + std::to_string(rank) + " \\(pid [0-9]+ on [^ ]+\\) "; }

std::string head(int rank) {
  return "training\n\\[cohort\\] (all_reduce|all_reduce_coalesced|broadcast) #[0-9]+ on group \"default_pg\" failed\n  "
         "rank " +
         std::to_string(rank) + " of 3 on [^ ]+, backend " + test::backend_of_tests() +
         ", [0-9.]+ [KMi]*B float32\n  caused by: ";
}

std::string text_of_the_lost(int rank, const std::string& how) {
  const std::string hint = "  hint: look at the output of rank 1 for the reason";
  const auto begin = head(rank) + process(1);
  if (is_shm()) return begin + how + "\n" + hint + "\n";
  return begin + "is gone\n(  caused by: [^\n]*\n)?" + hint +
         "; if it ended well, the ranks do not take the same steps; .*\n";
}

std::string text_of_the_killed(int rank) {
  return text_of_the_lost(rank, "(was killed by signal 9 \\(SIGKILL\\)|has ended)");
}

// Whose time is over first tells the other.
std::string text_of_the_stopped(int rank) {
  const std::string is_stopped = "is stopped \\(SIGSTOP or a debugger\\)\n";
  const std::string hint = "  hint: continue the stopped rank \\(kill -CONT PID\\), or end it\n";
  const auto told = "  caused by: " + process(1) + is_stopped;
  if (is_shm()) {
    const auto not_there = process(1) + "has not arrived within 4.0 s";
    return head(rank) + "(" + not_there + ": it " + is_stopped + "|" + process(2 - rank) +
           "failed first: " + not_there + "\n" + told + ")" + hint;
  }
  const std::string no_answer = "no answer from the other ranks within the group's timeout of 4.0 s\n";
  return head(rank) + "(" + no_answer + "  caused by: " + process(1) + "has not arrived: it " + is_stopped + "|" +
         process(2 - rank) +
         "gave up in (all_reduce|all_reduce_coalesced|broadcast) #[0-9]+ on group \"default_pg\": " + no_answer + told +
         ")  caused by: [^\n]*\n" + hint;
}

void expect_rank_one_named(const test::WorkerResults& results) {
  EXPECT_EQ(results[1].exit_code, -SIGKILL);
  for (const int rank : {0, 2}) {
    EXPECT_FALSE(results[rank].timed_out);
    EXPECT_EQ(results[rank].exit_code, 0) << results[rank].errors;
    EXPECT_THAT(results[rank].output, MatchesRegex(text_of_the_killed(rank)));
  }
}

TEST(DdpFailure, RankKilledInBackwardIsNamedMessage) {
  test::Workers workers("trains_until_a_rank_is_missing", {.world_size = 3, .arguments = {"killed"}});
  expect_rank_one_named(workers.wait());
}

TEST(DdpFailure, RankKilledAtARandomPointIsNamedMessage) {
  test::Workers workers("trains_until_a_rank_is_missing", {.world_size = 3, .arguments = {"neither"}});
  for (int rank = 0; rank < 3; ++rank) workers.wait_for_output(rank, "training");
  workers.signal(1, SIGKILL);
  expect_rank_one_named(workers.wait());
}

TEST(DdpFailure, RankStoppedInBackwardIsNamedMessage) {
  test::Workers workers("trains_until_a_rank_is_missing", {.world_size = 3, .arguments = {"stopped"}});
  for (const int rank : {0, 2}) workers.wait_for_output(rank, "  hint: ");
  workers.signal(1, SIGKILL);
  const auto results = workers.wait();
  for (const int rank : {0, 2}) {
    EXPECT_EQ(results[rank].exit_code, 0) << results[rank].errors;
    EXPECT_THAT(results[rank].output, MatchesRegex(text_of_the_stopped(rank)));
  }
}

// It ends by its exception, in the middle of a step of the others.
TEST(DdpFailure, RankThatThrowsIsNamedMessage) {
  for (const std::string where : {"forward", "backward"}) {
    const auto results = test::run_workers("trains_until_a_rank_is_missing", {.world_size = 3, .arguments = {where}});
    EXPECT_EQ(results[1].exit_code, 1);
    EXPECT_THAT(results[1].errors,
                testing::HasSubstr(where == "forward" ? "mat1 and mat2 shapes cannot be multiplied (4x9 and 8x256)"
                                                      : "the data of rank 1 are bad"));
    for (const int rank : {0, 2}) {
      EXPECT_EQ(results[rank].exit_code, 0) << results[rank].errors;
      EXPECT_THAT(results[rank].output, MatchesRegex(text_of_the_lost(rank, "has ended( with exit code 1)?")));
    }
  }
}

}  // namespace
}  // namespace cohort
