#include "cohort/job/failure.h"

#include <gtest/gtest.h>

namespace cohort::job {
namespace {

TEST(Failure, NamesWhatWhereWhyAndNextStepMessage) {
  const Operation operation{.name = "all_reduce",
                            .sequence = 1841,
                            .group = "dp",
                            .rank = 3,
                            .world_size = 8,
                            .host = "node-a",
                            .backend = "gloo",
                            .num_bytes = 25 * 1024 * 1024,
                            .dtype = "float32"};
  EXPECT_EQ(failure_text(
                failure_of(operation, {.causes = {"rank 5 (pid 71234 on node-a) is gone", "Connection closed by peer"},
                                       .hint = "look at the output of rank 5 for the reason"})),
            "[cohort] all_reduce #1841 on group \"dp\" failed\n"
            "  rank 3 of 8 on node-a, backend gloo, 25.0 MiB float32\n"
            "  caused by: rank 5 (pid 71234 on node-a) is gone\n"
            "  caused by: Connection closed by peer\n"
            "  hint: look at the output of rank 5 for the reason");
}

TEST(Failure, LeavesOutTheSizeOfAnOperationWithoutTensorMessage) {
  const Operation operation{.name = "barrier",
                            .sequence = 1,
                            .group = "default_pg",
                            .rank = 0,
                            .world_size = 2,
                            .host = "node-a",
                            .backend = "gloo"};
  EXPECT_EQ(failure_text(failure_of(operation, {})),
            "[cohort] barrier #1 on group \"default_pg\" failed\n  rank 0 of 2 on node-a, backend gloo");
}

TEST(Failure, WithoutAHeadlineItsCausesAreTheTextMessage) {
  EXPECT_EQ(failure_text({.causes = {"Connection closed by peer"}, .hint = "not shown"}), "Connection closed by peer");
}

TEST(Failure, SurvivesTheStore) {
  const Failure failure{.kind = Failure::Kind::kTimeout,
                        .causes = {"C:\\new\n\nline", "second"},
                        .hint = "wait",
                        .missing = {1, 12},
                        .timeout = std::chrono::milliseconds(1500),
                        .what = "start failed",
                        .where = {"rank 0", "rank 1"},
                        .note = "still missing: rank 2",
                        .operation = "all_reduce #5",
                        .scope = Failure::Scope::kJob};
  const auto text = encode_failure(failure);
  EXPECT_EQ(text.find("\n\n"), std::string::npos);
  const auto decoded = decode_failure(text + "\nhint of something else\n");
  EXPECT_EQ(decoded.kind, failure.kind);
  EXPECT_EQ(decoded.causes, failure.causes);
  EXPECT_EQ(decoded.missing, failure.missing);
  EXPECT_EQ(decoded.timeout, failure.timeout);
  EXPECT_EQ(decoded.operation, failure.operation);
  EXPECT_EQ(decoded.scope, failure.scope);
  EXPECT_EQ(failure_text(decoded), failure_text(failure));
}

TEST(Failure, WhatCannotBeReadIsLeftOut) {
  const auto failure = decode_failure("kind 99\nnonsense\nmissing x\nhint \\");
  EXPECT_EQ(failure.kind, Failure::Kind::kEngine);
  EXPECT_EQ(failure.hint, "\\");
  EXPECT_EQ(decode_failure("").what, "");
}

}  // namespace
}  // namespace cohort::job
