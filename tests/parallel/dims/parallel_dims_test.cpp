#include "cohort/parallel/dims/parallel_dims.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

#include "cohort/comm/collectives/collectives.h"
#include "tests/support/rank_processes.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"

namespace cohort {
namespace {

using test::error_of;
using test::run_workers;

TEST(ParallelDims, GiveTheRestToOne) {
  const parallel::ParallelDims all{.dp_replicate = 1, .dp_shard = 2, .tp = 2, .pp = 2, .cp = 1};
  EXPECT_EQ(all.resolved(8), all);
  EXPECT_EQ((parallel::ParallelDims{.dp_shard = -1, .tp = 2, .pp = 2}.resolved(8)), all);
  EXPECT_EQ((parallel::ParallelDims{.dp_shard = 2, .tp = 2, .pp = -1}.resolved(8)), all);
  EXPECT_EQ((parallel::ParallelDims{.dp_shard = 4, .tp = -1}.resolved(4)),
            (parallel::ParallelDims{.dp_shard = 4, .tp = 1}));
  EXPECT_EQ(parallel::ParallelDims{}.resolved(1), parallel::ParallelDims{});
  EXPECT_EQ(all.dp_size(), 2);
  EXPECT_EQ(all.non_data_parallel_size(), 4);
  EXPECT_EQ((parallel::ParallelDims{.tp = 2, .cp = 3}.seq_len_divisor()), 12);
  EXPECT_TRUE(all.tp_enabled() && all.pp_enabled() && all.dp_enabled() && all.fsdp_enabled() && !all.cp_enabled());
  EXPECT_TRUE((parallel::ParallelDims{.cp = 2}.fsdp_enabled()));
}

TEST(ParallelDims, ShowTheProduct) {
  const auto of = [](const parallel::ParallelDims& dims, int64_t world_size) {
    return error_of([&] { dims.resolved(world_size); });
  };
  EXPECT_EQ(of({.dp_shard = 3, .tp = 2}, 8),
            "[cohort] ParallelDims: pp(1) * dp_replicate(1) * dp_shard(3) * cp(1) * tp(2) = 6, but there are 8 ranks\n"
            "  hint: start 6 ranks, or set one of the numbers to -1, which stands for the remaining ranks");
  EXPECT_EQ(of({.dp_shard = -1, .tp = 3}, 8),
            "[cohort] ParallelDims: dp_shard is -1, which stands for the rest of 8 ranks, but pp(1) * dp_replicate(1) "
            "* cp(1) * tp(3) = 3 "
            "does not divide 8: 8 mod 3 = 2\n  hint: start a multiple of 3 ranks, or change one of the numbers");
  EXPECT_EQ(of({.dp_shard = -1, .tp = -1}, 8),
            "[cohort] ParallelDims: dp_shard and tp are -1, but only one may be\n"
            "  hint: set the others to a number of ranks; 1 switches an axis off");
  EXPECT_EQ(of({.cp = 0}, 8),
            "[cohort] ParallelDims: cp is 0\n  hint: set each to a number of ranks, at least 1; one may be -1, which "
            "stands for the remaining ranks");
  EXPECT_EQ(of({.pp = -2}, 8),
            "[cohort] ParallelDims: pp is -2\n  hint: set each to a number of ranks, at least 1; one may be -1, which "
            "stands for the remaining ranks");
  const auto largest = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(of({.tp = largest, .pp = largest, .cp = -1}, 8).substr(0, 75),
            "[cohort] ParallelDims: cp is -1, which stands for the rest of 8 ranks, but ");
}

COHORT_WORKER(dims_make_a_mesh) {
  const auto mesh = parallel::ParallelDims{.dp_replicate = 2, .dp_shard = 1, .tp = 2, .cp = -1}.build_mesh("cpu");
  REQUIRE_EQUAL(mesh.to_string(), "DeviceMesh((dp_replicate=2, cp=2, tp=2), 'cpu', stride=(4, 2, 1))");
  const int64_t rank = get_rank();
  REQUIRE(mesh.local_rank("tp") == rank % 2 && mesh.local_rank("cp") == rank / 2 % 2 &&
          mesh.local_rank("dp_replicate") == rank / 4);
  REQUIRE(mesh["dp"].size() == 2 && mesh["dp"].local_rank() == rank / 4);
  REQUIRE(mesh["dp_shard_cp"].size() == 2 && mesh["dp_shard_cp"].local_rank() == rank / 2 % 2);
  REQUIRE(mesh["dp_cp"].size() == 4 && mesh["dp_cp"].local_rank() == rank / 2);
  const auto sum = at::tensor({rank}, at::kLong);
  all_reduce(sum, {.group = mesh["dp_cp"].group()});
  REQUIRE(sum.item<int64_t>() == (rank % 2 == 0 ? 12 : 16));
  barrier();  // no rank leaves while another one connects
  destroy_process_group();
}

TEST(ParallelDims, MakeAMesh) { run_workers("dims_make_a_mesh", {.world_size = 8}).expect_success(); }

COHORT_WORKER(dims_of_pipelines) {
  const auto mesh = parallel::ParallelDims{.dp_shard = 2, .pp = 2}.build_mesh("cpu");
  REQUIRE_EQUAL(mesh.to_string(), "DeviceMesh((pp=2, dp_shard=2), 'cpu', stride=(2, 1))");
  REQUIRE(mesh["pp"].local_rank() == get_rank() / 2 && mesh["dp"].local_rank() == get_rank() % 2);
  REQUIRE(mesh["dp_shard_cp"].size() == 2 && mesh["dp_cp"].size() == 2);
  REQUIRE_EQUAL(
      error_of([] { parallel::ParallelDims{.tp = 3}.build_mesh("cpu"); }),
      "[cohort] ParallelDims: pp(1) * dp_replicate(1) * dp_shard(1) * cp(1) * tp(3) = 3, but there are 4 ranks\n"
      "  hint: start 3 ranks, or set one of the numbers to -1, which stands for the remaining ranks");
  barrier();  // no rank leaves while another one connects
  destroy_process_group();
}

TEST(ParallelDims, PutStagesOutermost) { run_workers("dims_of_pipelines", {.world_size = 4}).expect_success(); }

COHORT_WORKER(dims_of_one_rank) {
  const auto mesh = parallel::ParallelDims{.dp_shard = -1}.build_mesh("cpu");
  REQUIRE_EQUAL(mesh.to_string(), "DeviceMesh((dp_shard=1), 'cpu', stride=((),))");
  REQUIRE(mesh["dp"].size() == 1 && mesh["dp_cp"].size() == 1);
  barrier();  // no rank leaves while another one connects
  destroy_process_group();
}

TEST(ParallelDims, OfOneRank) { run_workers("dims_of_one_rank", {.world_size = 1}).expect_success(); }

}  // namespace
}  // namespace cohort
