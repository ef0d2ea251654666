#include "cohort/job/failure_text.h"

#include <gtest/gtest.h>

namespace cohort::job {
namespace {

TEST(FailureText, NamesWhatWhereWhyAndNextStepMessage) {
  Failure failure;
  failure.operation = {.name = "all_reduce",
                       .sequence = 1841,
                       .group = "dp",
                       .rank = 3,
                       .world_size = 8,
                       .host = "node-a",
                       .backend = "gloo",
                       .num_bytes = 25 * 1024 * 1024,
                       .dtype = "float32"};
  failure.causes = {"rank 5 (pid 71234 on node-a) is gone", "Connection closed by peer"};
  failure.hint = "look at the output of rank 5 for the reason";
  EXPECT_EQ(failure_message(failure),
            "[cohort] all_reduce #1841 on group \"dp\" failed\n"
            "  rank 3 of 8 on node-a, backend gloo, 25.0 MiB float32\n"
            "  caused by: rank 5 (pid 71234 on node-a) is gone\n"
            "  caused by: Connection closed by peer\n"
            "  hint: look at the output of rank 5 for the reason");
}

TEST(FailureText, LeavesOutTheSizeOfAnOperationWithoutTensorMessage) {
  Failure failure;
  failure.operation = {.name = "barrier",
                       .sequence = 1,
                       .group = "default_pg",
                       .rank = 0,
                       .world_size = 2,
                       .host = "node-a",
                       .backend = "gloo"};
  EXPECT_EQ(failure_message(failure),
            "[cohort] barrier #1 on group \"default_pg\" failed\n  rank 0 of 2 on node-a, backend gloo");
}

TEST(FailureText, ListsRanksInWords) {
  EXPECT_EQ(ranks_in_words({3}), "rank 3");
  EXPECT_EQ(ranks_in_words({1, 2}), "ranks 1 and 2");
  EXPECT_EQ(ranks_in_words({1, 2, 5}), "ranks 1, 2 and 5");
}

}  // namespace
}  // namespace cohort::job
