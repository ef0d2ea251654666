#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tests/support/rank_processes.h"

namespace cohort::comm {
namespace {

COHORT_WORKER(torch_release_fits) { std::puts("loaded"); }

TEST(TorchRelease, SameReleaseLoads) {
  const auto results = test::run_workers("torch_release_fits", {.world_size = 1});
  results.expect_success();
  EXPECT_THAT(results[0].output, testing::HasSubstr("loaded"));
}

TEST(TorchRelease, OtherReleaseEndsTheProcessMessage) {
  const std::string fake = std::string(std::getenv("COHORT_BINARY_DIR")) + "/lib/libcohort_fake_torch_release.so";
  const auto results =
      test::run_workers("torch_release_fits", {.world_size = 1, .environment = {{"LD_PRELOAD", fake}}});
  EXPECT_EQ(results[0].exit_code, 1);
  EXPECT_EQ(results[0].output, "");
  EXPECT_EQ(results[0].errors,
            "[cohort] libcohort.so was built against LibTorch " COHORT_TEST_TORCH_RELEASE
            ", but this process has loaded LibTorch 2.9\n"
            "  hint: take the other release out of LD_LIBRARY_PATH or the Python environment, or build Cohort again "
            "with -DCOHORT_TORCH_ROOT=<that LibTorch>\n");
}

}  // namespace
}  // namespace cohort::comm
