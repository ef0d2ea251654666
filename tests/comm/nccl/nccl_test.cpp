#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/nccl/nccl_backend.h"
#include "cohort/comm/registry/backend_registry.h"
#include "tests/support/rank_processes.h"
#include "tests/support/require.h"

namespace cohort {
namespace {

using test::error_of;
using test::run_workers;

COHORT_WORKER(nccl_without_gpu) {
  const auto message = error_of([] { init_process_group("nccl"); });
  if (is_nccl_available()) {
    REQUIRE(message.rfind("[cohort] backend \"nccl\" needs a GPU, and rank 0 of group \"default_pg\" on ", 0) == 0);
    const std::string end =
        " sees none\n  hint: check nvidia-smi and CUDA_VISIBLE_DEVICES; on CPU use backend \"gloo\"";
    REQUIRE(message.size() > end.size() && message.substr(message.size() - end.size()) == end);
  } else {
    REQUIRE_EQUAL(message,
                  std::string("Distributed package doesn't have NCCL built in: ") + COHORT_TEST_NCCL_MISSING +
                      "\n  hint: build Cohort with -DCOHORT_TORCH_ROOT=<a LibTorch with CUDA> and, where nccl.h lies "
                      "neither beside it (pip's nvidia-nccl packages) nor in the CUDA toolkit, "
                      "-DCOHORT_NCCL_INCLUDE_DIR=<its folder>; on CPU use backend \"gloo\"");
  }
  // The failed attempt leaves nothing behind.
  REQUIRE(!is_initialized());
}

TEST(Nccl, SaysWhatIsMissingMessage) {
  if (at::hasCUDA()) GTEST_SKIP() << "a GPU is present";
  run_workers("nccl_without_gpu", {.world_size = 1, .environment = {{"CUDA_VISIBLE_DEVICES", ""}}}).expect_success();
}

TEST(Nccl, IsCompiledWhereLibTorchHasCuda) {
  EXPECT_EQ(is_nccl_available(), std::string(COHORT_TEST_NCCL_MISSING).empty());
  EXPECT_EQ(is_backend_available("nccl"), is_nccl_available());
}

}  // namespace
}  // namespace cohort
