#include "cohort/parallel/tensor/regions.h"

#include <gtest/gtest.h>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/group/subgroups.h"
#include "cohort/mesh/shard.h"
#include "cohort/parallel/tensor/division.h"
#include "tests/parallel/tensor/numbers.h"
#include "tests/support/rank_processes.h"
#include "tests/support/rank_threads.h"

namespace cohort {
namespace {

using test::drawn;
using test::error_of;
using test::gradients_of;
using test::require_near;
using test::run_workers;

// One tensor per rank, the same on all ranks.
std::vector<at::Tensor> of_ranks(const std::vector<int64_t>& shape, uint64_t seed) {
  std::vector<at::Tensor> tensors;
  for (int rank = 0; rank < get_world_size(); ++rank) tensors.push_back(drawn(shape, 100 * seed + rank));
  return tensors;
}

at::Tensor sum_of_all(const std::vector<at::Tensor>& tensors) { return at::stack(tensors).sum(0); }

at::Tensor chunk_of(const at::Tensor& whole, int64_t dim) {
  const auto range = mesh::chunk_range(whole.size(dim), get_world_size(), get_rank());
  return whole.narrow(dim, range.begin, range.size());
}

COHORT_WORKER(regions_copy_and_reduce) {
  init_process_group({.backend = test::backend_of_tests()});
  const auto inputs = of_ranks({3, 2}, 1), cotangents = of_ranks({3, 2}, 2);
  const auto x = inputs[get_rank()].clone().requires_grad_();
  const auto copied = parallel::copy_to_region(x);
  REQUIRE(at::equal(copied, x));
  require_near(gradients_of(copied, cotangents[get_rank()], {x})[0], sum_of_all(cotangents));
  const auto reduced = parallel::reduce_from_region(x);
  require_near(reduced, sum_of_all(inputs));
  REQUIRE(at::equal(x, inputs[get_rank()]));
  REQUIRE(at::equal(gradients_of(reduced, cotangents[get_rank()], {x})[0], cotangents[get_rank()]));
  destroy_process_group();
}

TEST(TensorRegions, CopyAndReduceAreEachOthersBackward) {
  for (const int n : {2, 4}) run_workers("regions_copy_and_reduce", {.world_size = n}).expect_success();
}

// Of 5 rows, 4 ranks have 2, 2, 1 and 0; of 6 columns 2, 2, 2 and 0; 8 divide.
COHORT_WORKER(regions_parts) {
  init_process_group({.backend = test::backend_of_tests()});
  const std::vector<int64_t> shape{5, 6, 8};
  for (const int64_t dim : {0, 1, 2, -1, -3}) {
    const auto inputs = of_ranks(shape, 3), cotangents = of_ranks(shape, 4);
    const auto x = inputs[0].clone().requires_grad_();  // the same on all ranks
    const auto positive = dim < 0 ? dim + 3 : dim;
    const auto part = parallel::scatter_to_region(x, dim);
    REQUIRE(at::equal(part, chunk_of(x, positive)));
    const auto weights = cotangents[0];
    require_near(gradients_of(part, chunk_of(weights, positive), {x})[0], weights);

    const auto own = chunk_of(x.detach(), positive).clone().requires_grad_();
    const auto same = parallel::gather_from_region(own, dim, {.size = shape[positive]});
    REQUIRE(at::equal(same, x));
    REQUIRE(at::equal(gradients_of(same, weights, {own})[0], chunk_of(weights, positive)));
    const auto summed =
        parallel::gather_from_region(own, dim, {.gradient = parallel::RegionGradient::kSum, .size = shape[positive]});
    REQUIRE(at::equal(summed, x));
    require_near(gradients_of(summed, cotangents[get_rank()], {own})[0], chunk_of(sum_of_all(cotangents), positive));

    const auto mine = inputs[get_rank()].clone().requires_grad_();
    const auto scattered = parallel::reduce_scatter_to_region(mine, dim);
    require_near(scattered, chunk_of(sum_of_all(inputs), positive));
    require_near(gradients_of(scattered, chunk_of(weights, positive), {mine})[0], weights);
  }
  destroy_process_group();
}

TEST(TensorRegions, PartsAreThoseOfChunk) {
  for (const int n : {2, 3, 4}) run_workers("regions_parts", {.world_size = n}).expect_success();
}

COHORT_WORKER(regions_all_to_all) {
  init_process_group({.backend = test::backend_of_tests()});
  const int64_t n = get_world_size();
  const auto whole = drawn({2, 4, 3 * n}, 5), cotangent = drawn({2, 4, 3 * n}, 6);
  const auto x = chunk_of(whole, 2).clone().requires_grad_();
  const auto y = parallel::all_to_all_region(x, 1, -1);
  REQUIRE(at::equal(y, chunk_of(whole, 1)));
  REQUIRE(at::equal(gradients_of(y, chunk_of(cotangent, 1), {x})[0], chunk_of(cotangent, 2)));
  REQUIRE(at::equal(parallel::all_to_all_region(y, 2, 1), x));
  destroy_process_group();
}

TEST(TensorRegions, AllToAllShardsAnotherDimension) {
  for (const int n : {2, 4}) run_workers("regions_all_to_all", {.world_size = n}).expect_success();
}

COHORT_WORKER(regions_second_derivatives) {
  init_process_group({.backend = test::backend_of_tests()});
  const auto x = drawn({4, 2}, 7 + get_rank()).requires_grad_();
  const auto n = static_cast<double>(get_world_size());
  // y = sum over ranks of x; with the loss sum of y^3, each rank's gradient is 3 y^2 and its derivative 6 y, as reduce does not
  // sum.
  const auto y = parallel::reduce_from_region(x);
  const auto first = torch::autograd::grad({y.pow(3).sum()}, {x}, {}, std::nullopt, /*create_graph=*/true)[0];
  require_near(first, 3 * y * y);
  require_near(torch::autograd::grad({first.sum()}, {x})[0], 6 * n * y, 1e-4);
  // z = own rows of the sum; gathered again in backward.
  const auto z = parallel::reduce_scatter_to_region(x, 0);
  const auto of_z = torch::autograd::grad({z.pow(3).sum()}, {x}, {}, std::nullopt, /*create_graph=*/true)[0];
  require_near(of_z, 3 * y.detach() * y.detach(), 1e-4);
  require_near(torch::autograd::grad({of_z.sum()}, {x})[0], 6 * n * y.detach(), 1e-4);
  destroy_process_group();
}

TEST(TensorRegions, HaveSecondDerivatives) {
  run_workers("regions_second_derivatives", {.world_size = 2}).expect_success();
}

COHORT_WORKER(regions_errors) {
  init_process_group({.backend = test::backend_of_tests()});
  const auto x = at::ones({4, 6});
  REQUIRE_EQUAL(error_of([&] { parallel::scatter_to_region(x, 2); }),
                "Dimension out of range (expected to be in range of [-2, 1], but got 2)");
  if (get_rank() == 3) {
    REQUIRE_EQUAL(
        error_of([&] { parallel::gather_from_region(x, 0, {.size = 10}); }),
        "[cohort] gather_from_region: rank 3 has 4 along dimension 0, but its share of 10 is 1: "
        "ceil(10 / 4) = 3 for each of 4 ranks, so they have 3, 3, 3, 1\n"
        "  hint: set `size` to that of the full tensor, which scatter_to_region and chunk_range() divide like this");
  }
  REQUIRE_EQUAL(error_of([&] { parallel::all_to_all_region(x, 1, 0); }),
                "[cohort] 6 entries along dimension 1 cannot be divided evenly among 4 ranks: 6 = 1 * 4 + 2\n"
                "  hint: take a multiple of 4, or a number of ranks that divides it: 1, 2 or 3");
  REQUIRE_EQUAL(error_of([&] { parallel::all_to_all_region(x, 0, -2); }),
                "[cohort] all_to_all_region: dimension 0 is both scattered and gathered");
  REQUIRE_EQUAL(error_of([&] { parallel::divided(7, "attention heads"); }),
                "[cohort] 7 attention heads cannot be divided evenly among 4 ranks: 7 = 1 * 4 + 3\n"
                "  hint: take a multiple of 4, or a number of ranks that divides it: 1");
  REQUIRE(parallel::divided(12, "attention heads") == 3);
  const auto pair = new_group({0, 1});
  if (get_rank() > 1) {
    REQUIRE_EQUAL(error_of([&] { parallel::copy_to_region(x, pair); }), "Invalid process group specified");
  } else {
    REQUIRE(at::equal(parallel::reduce_from_region(x, pair), 2 * x));
  }
  barrier();  // no rank leaves while another one connects
  destroy_process_group();
}

TEST(TensorRegions, SayWhatDoesNotFit) { run_workers("regions_errors", {.world_size = 4}).expect_success(); }

TEST(TensorRegions, GiveTheInputBackWithoutGroups) {
  const auto x = at::ones({4, 6});
  EXPECT_TRUE(parallel::copy_to_region(x).is_same(x));
  EXPECT_TRUE(parallel::reduce_from_region(x).is_same(x));
  EXPECT_TRUE(parallel::scatter_to_region(x, 0).is_same(x));
  EXPECT_TRUE(parallel::gather_from_region(x, 0).is_same(x));
  EXPECT_TRUE(parallel::reduce_scatter_to_region(x, 0).is_same(x));
  EXPECT_TRUE(parallel::all_to_all_region(x, 0, 1).is_same(x));
  EXPECT_EQ(parallel::divided(7, "attention heads"), 7);
  for (const int64_t number : {0, -1}) {
    EXPECT_EQ(test::error_of([&] { parallel::divided(number, "attention heads"); }),
              "[cohort] " + std::to_string(number) + " attention heads cannot be divided: there must be at least one");
  }
}

}  // namespace
}  // namespace cohort
