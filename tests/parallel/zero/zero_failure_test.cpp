// A rank that dies in a step of ZeRO: the others end soon, with an error that names it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <iostream>

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

// Of two parameters rank 0 owns the larger one.
COHORT_WORKER(writes_to_another_ranks_parameter) {
  signal(SIGSEGV, SIG_DFL);  // a sanitizer would tell of it
  init_process_group({.backend = "shm"});
  const auto large = at::zeros({5}).requires_grad_(), small = at::zeros({3}).requires_grad_();
  ZeroRedundancyOptimizer zero({small, large}, test::make_adam, {.one_memory = true});
  test::print_error([&] {
    ZeroRedundancyOptimizer({at::zeros({2}).requires_grad_()}, test::make_adam,
                            {.overlap_with_ddp = true, .one_memory = true});
  });
  const at::NoGradGuard no_grad;
  (get_rank() == 0 ? large : small).fill_(7);
  barrier();
  std::cout << large[4].item<float>() << " " << small[2].item<float>() << "\n" << std::flush;
  barrier();
  if (get_rank() == 1) large.fill_(1);
}

TEST(ZeroFailure, WriteToAParameterOfAnotherRank) {
  const auto results = test::run_workers("writes_to_another_ranks_parameter");
  EXPECT_EQ(results[1].exit_code, -SIGSEGV);
  EXPECT_THAT(results[1].errors,
              testing::HasSubstr("[cohort] error: a write to parameter 1 of a ZeroRedundancyOptimizer with one_memory, "
                                 "which rank 0 owns, so only that rank may write it\n  hint: load and change "
                                 "parameters before you make the optimizer, or leave one_memory off\n"));
  for (const int rank : {0, 1}) {
    EXPECT_EQ(
        results[rank].output,
        "[cohort] ZeroRedundancyOptimizer: one_memory cannot be combined with overlap_with_ddp: owners would update "
        "parameters that backward passes of other ranks still read\n7 7\n");
  }
}

}  // namespace
}  // namespace cohort
