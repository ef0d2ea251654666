// A rank that dies in a step of ZeRO: the others end soon, with an error that names it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/parallel/zero/training.h"
#include "tests/support/rank_processes.h"
#include "tests/support/rank_threads.h"

namespace cohort {
namespace {

COHORT_WORKER(dies_in_a_step_of_zero) {
  init_process_group({.backend = test::backend_of_tests()});
  const bool has_buckets = test::worker_arguments().at(0) == "buckets";
  test::Mlp net(64);
  ZeroRedundancyOptimizer zero(net->parameters(), test::make_adam, {.parameters_as_bucket_view = has_buckets});
  test::print_error([&] {
    for (int step = 0;; ++step) {
      zero.zero_grad();
      net->forward(at::ones({4, 8})).sum().backward();
      zero.step([&] {
        if (step == 3 && get_rank() == 1) raise(SIGKILL);
        return at::Tensor();
      });
    }
  });
}

TEST(ZeroFailure, ARankThatDiesInAStepIsNamed) {
  for (const char* buckets : {"buckets", "parameters"}) {
    const auto results = test::run_workers("dies_in_a_step_of_zero", {.world_size = 3, .arguments = {buckets}});
    EXPECT_EQ(results[1].exit_code, -SIGKILL);
    for (const int rank : {0, 2}) {
      EXPECT_FALSE(results[rank].timed_out);
      EXPECT_THAT(results[rank].output, testing::ContainsRegex("broadcast #[0-9]+ on group \"default_pg\" failed"));
      EXPECT_THAT(results[rank].output, testing::ContainsRegex("caused by: " + test::process_regex(1)));
    }
  }
}

}  // namespace
}  // namespace cohort
