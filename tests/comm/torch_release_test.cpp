#include "cohort/comm/torch_release.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tests/support/rank_processes.h"

namespace cohort::comm {
namespace {

TEST(TorchRelease, LoadedIsTheOneBuiltAgainst) {
  const auto loaded = loaded_torch_release();
  ASSERT_TRUE(loaded.has_value());
  EXPECT_EQ(loaded->major, built_torch_release().major);
  EXPECT_EQ(loaded->minor, built_torch_release().minor);
}

TEST(TorchRelease, PatchReleasesFit) { EXPECT_EQ(explain_torch_mismatch({2, 13, 0}, TorchRelease{2, 13, 1}, ""), ""); }

TEST(TorchRelease, OtherReleaseMessage) {
  EXPECT_EQ(
      explain_torch_mismatch({2, 13, 0}, TorchRelease{2, 12, 0}, "/opt/torch/lib/libtorch_cpu.so"),
      "[cohort] libcohort.so cannot be used with the LibTorch in this process\n"
      "  built against: LibTorch 2.13.0\n"
      "  loaded: LibTorch 2.12.0 from /opt/torch/lib/libtorch_cpu.so\n"
      "  hint: take the other release out of LD_LIBRARY_PATH or the Python environment, or build Cohort again with "
      "-DCOHORT_TORCH_ROOT=<that LibTorch>\n");
}

TEST(TorchRelease, UnknownReleaseMessage) {
  EXPECT_THAT(explain_torch_mismatch({2, 13, 0}, std::nullopt, ""),
              testing::HasSubstr("\n  loaded: a LibTorch older than 2.9\n"));
}

COHORT_WORKER(torch_release_is_reached) {}

TEST(TorchRelease, MismatchEndsTheProcessAtLoadTime) {
  const std::string fake = std::string(std::getenv("COHORT_BINARY_DIR")) + "/lib/libcohort_fake_torch_release.so";
  const auto results =
      test::run_workers("torch_release_is_reached", {.world_size = 1, .environment = {{"LD_PRELOAD", fake}}});
  EXPECT_EQ(results[0].exit_code, 1);
  EXPECT_THAT(results[0].errors, testing::HasSubstr("libcohort.so cannot be used with the LibTorch in this process"));
  EXPECT_THAT(results[0].errors, testing::HasSubstr("loaded: LibTorch 2.9.1 from " + fake));
}

}  // namespace
}  // namespace cohort::comm
