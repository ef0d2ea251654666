// Ranks that die while others train: the survivors end soon, with an error that names the lost rank.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "cohort/parallel/ddp/distributed_data_parallel.h"
#include "tests/parallel/ddp/nets.h"
#include "tests/support/rank_processes.h"
#include "tests/support/rank_threads.h"

namespace cohort {
namespace {

using testing::MatchesRegex;

// argument 0: "backward" kills rank 1 from inside its own backward pass, "step" leaves that to the test.
COHORT_WORKER(trains_until_a_rank_dies) {
  init_process_group({.backend = test::backend_of_tests()});
  auto net = test::Mlp(256);
  DistributedDataParallel ddp(net);
  const bool dies_in_backward = test::worker_arguments().at(0) == "backward";
  try {
    for (int step = 0;; ++step) {
      if (step == 3) std::cout << "training" << std::endl;
      auto output = ddp(at::ones({4, 8}));
      if (dies_in_backward && step == 5 && get_rank() == 1) {
        output.register_hook([](const at::Tensor&) { raise(SIGKILL); });
      }
      ddp->zero_grad();
      output.sum().backward();
    }
  } catch (const c10::Error& error) {
    std::cout << error.what_without_backtrace() << std::endl;
  }
}

std::string expected_text(int rank) {
  const bool is_shm = test::backend_of_tests() == "shm";
  const std::string head =
      "training\n\\[cohort\\] (all_reduce|broadcast) #[0-9]+ on group \"default_pg\" failed\n  rank " +
      std::to_string(rank) + " of 3 on [^ ]+, backend " + test::backend_of_tests() +
      ", [0-9.]+ [KMi]*B float32\n  caused by: rank 1 \\(pid [0-9]+ on [^ ]+\\) ";
  const std::string hint = "  hint: look at the output of rank 1 for the reason";
  if (is_shm) return head + "(was killed by signal 9 \\(SIGKILL\\)|has ended)\n" + hint + "\n";
  return head + "is gone\n  caused by: .*\n" + hint + "; if it ended well, the ranks do not take the same steps; .*\n";
}

void expect_rank_one_named(const test::WorkerResults& results) {
  EXPECT_EQ(results[1].exit_code, -SIGKILL);
  for (const int rank : {0, 2}) {
    EXPECT_FALSE(results[rank].timed_out);
    EXPECT_EQ(results[rank].exit_code, 0) << results[rank].errors;
    EXPECT_THAT(results[rank].output, MatchesRegex(expected_text(rank)));
  }
}

TEST(DdpFailure, RankKilledInBackwardIsNamedMessage) {
  test::Workers workers("trains_until_a_rank_dies",
                        {.world_size = 3, .arguments = {"backward"}, .time_limit = std::chrono::seconds(40)});
  expect_rank_one_named(workers.wait());
}

TEST(DdpFailure, RankKilledAtARandomPointIsNamedMessage) {
  test::Workers workers("trains_until_a_rank_dies",
                        {.world_size = 3, .arguments = {"step"}, .time_limit = std::chrono::seconds(40)});
  for (int rank = 0; rank < 3; ++rank) workers.wait_for_output(rank, "training");
  workers.signal(1, SIGKILL);
  expect_rank_one_named(workers.wait());
}

}  // namespace
}  // namespace cohort
