#include "cohort/parallel/functional/functional_collectives.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "cohort/comm/group/subgroups.h"
#include "tests/support/rank_processes.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"

namespace cohort::functional {
namespace {

using test::error_of;
using test::run_workers;

at::Tensor numbers() { return at::arange(4, at::kDouble).add(10 * get_rank()).view({2, 2}); }

COHORT_WORKER(functional_values) {
  init_process_group({.backend = test::backend_of_tests()});
  const int rank = get_rank();
  const auto mine = numbers();
  const auto sum = wait_tensor(all_reduce(mine, ReduceOp::SUM));
  REQUIRE(at::equal(sum, at::tensor({10., 12., 14., 16.}).view({2, 2})));
  REQUIRE(at::equal(mine, numbers()));
  REQUIRE(at::equal(wait_tensor(all_reduce(mine, ReduceOp::AVG)), sum / 2));
  REQUIRE(at::equal(wait_tensor(broadcast(mine, 1)), numbers() + 10 * (1 - rank)));
  const auto other = numbers() + (rank == 0 ? 10 : -10);
  const auto pair = rank == 0 ? TensorList{mine, other} : TensorList{other, mine};
  REQUIRE(at::equal(wait_tensor(all_gather_single(mine, 0)), at::cat(pair, 0)));
  REQUIRE(at::equal(all_gather_tensor(mine, -1), at::cat(pair, 1)));
  REQUIRE(at::equal(wait_tensor(all_gather_single(at::full({}, rank), 0)), at::arange(2)));
  REQUIRE(at::equal(wait_tensor(reduce_scatter_single(mine, ReduceOp::SUM, 0)), sum.narrow(0, rank, 1)));
  REQUIRE(at::equal(wait_tensor(reduce_scatter_tensor(mine, ReduceOp::MAX, 1)),
                    pair[1].narrow(1, rank, 1).reshape({2, 1})));
  REQUIRE(at::equal(wait_tensor(permute_tensor(at::full({3}, rank), {1, 0})), at::full({3}, 1 - rank)));
  const auto left = wait_tensor(permute_tensor(at::full({3}, rank), {0, 0}));
  REQUIRE(at::equal(left, rank == 0 ? at::tensor({0, 0, 0, 1, 1, 1}) : at::empty({0}, at::kLong)));
  REQUIRE(&*wait_tensor(mine).unsafeGetTensorImpl() == &*mine.unsafeGetTensorImpl());
  destroy_process_group();
}

TEST(FunctionalCollectives, LeaveTheirInputAlone) { run_workers("functional_values").expect_success(); }

COHORT_WORKER(functional_derivatives) {
  init_process_group({.backend = test::backend_of_tests()});
  const auto x = numbers().set_requires_grad(true);
  // loss = sum(y^3), y = sum over ranks: gradient on each rank 2 * 3 y^2, its derivative 2 * 2 * 6 y.
  const auto y = wait_tensor(all_reduce(x, ReduceOp::SUM));
  const auto first = torch::autograd::grad({y.pow(3).sum()}, {x}, {}, std::nullopt, true)[0];
  REQUIRE(at::equal(first, 6 * y * y));
  const auto second = torch::autograd::grad({first.sum()}, {x})[0];
  REQUIRE(at::equal(second, 24 * y));
  // Half of each: the gradient is the mean of 3 y^2 over ranks, its derivative half of 6 y, twice.
  const auto mean = wait_tensor(all_reduce(x, ReduceOp::AVG));
  const auto first_of_mean = torch::autograd::grad({mean.pow(3).sum()}, {x}, {}, std::nullopt, true)[0];
  REQUIRE(at::equal(first_of_mean, 3 * mean * mean));
  REQUIRE(at::equal(torch::autograd::grad({first_of_mean.sum()}, {x})[0], 6 * mean));
  // This rank's row of the mean, times its rank + 1: every rank gets both rows, halved.
  const auto row = wait_tensor(reduce_scatter_single(x, ReduceOp::AVG, 0));
  const auto scale = static_cast<double>(get_rank() + 1);
  const auto of_rows = torch::autograd::grad({(scale * row * row).sum()}, {x}, {}, std::nullopt, true)[0];
  const auto factors = at::tensor({1., 2.}).view({2, 1});
  REQUIRE(at::equal(of_rows, factors * mean));
  // Each rank's derivative of its sum is halved again, and comes from both ranks.
  REQUIRE(at::equal(torch::autograd::grad({of_rows.sum()}, {x})[0], factors.expand({2, 2})));
  const auto max = wait_tensor(all_reduce(x, ReduceOp::MAX));
  REQUIRE_EQUAL(error_of([&] { torch::autograd::grad({max.sum()}, {x}); }),
                "[cohort] all_reduce backward only supports 'sum' and 'avg' reduction");
  REQUIRE(!wait_tensor(broadcast(x, 0)).requires_grad());
  destroy_process_group();
}

TEST(FunctionalCollectives, HaveDerivativesOfAnyOrder) { run_workers("functional_derivatives").expect_success(); }

COHORT_WORKER(functional_arguments) {
  init_process_group({.backend = test::backend_of_tests()});
  const auto group = new_group({0});
  const auto mine = numbers();
  if (get_rank() == 1) {
    REQUIRE_EQUAL(error_of([&] { all_reduce(mine, ReduceOp::SUM, group); }), "Invalid process group specified");
  }
  REQUIRE_EQUAL(error_of([&] {
                  reduce_scatter_single(at::ones({3, 2}), ReduceOp::SUM, 0);
                }),
                "input dimension 0 (3) must be a multiple of group_size 2");
  REQUIRE_EQUAL(error_of([&] {
                  reduce_scatter_single_coalesced({mine, at::ones({2, 5})}, ReduceOp::SUM, {0, 1});
                }),
                "input dimension 1 (5) must be a multiple of group_size 2 for tensor at index 1");
  REQUIRE_EQUAL(error_of([&] { reduce_scatter_tensor_coalesced({mine}, ReduceOp::SUM, {}); }),
                "Length of scatter_dim (0) must equal length of inputs (1)");
  REQUIRE_EQUAL(error_of([&] { all_gather_single(mine, 2); }),
                "[cohort] all_gather_single: dimension 2 of a tensor with 2");
  REQUIRE_EQUAL(error_of([&] {
                  all_to_all_single(mine, std::vector<int64_t>{1, 1}, std::nullopt);
                }),
                "output_split_sizes and input_split_sizes must either be specified together or both left out");
  REQUIRE_EQUAL(
      error_of([&] { all_to_all_single(at::ones({3}), std::nullopt, std::nullopt); }),
      "[cohort] all_to_all_single: dim 0 is 3, which does not divide equally among 2 ranks; give split sizes");
  REQUIRE_EQUAL(error_of([&] { permute_tensor(at::ones({3}), {1}); }),
                "[cohort] permute_tensor needs one destination per rank, 2, got 1");
  REQUIRE_EQUAL(error_of([&] {
                  permute_tensor(at::ones({3}), {1, 2});
                }),
                "[cohort] permute_tensor: destination 2 of rank 1 is out of range. Valid ranks are 0 to 1");
  REQUIRE_EQUAL(error_of([&] { all_reduce_coalesced({}, ReduceOp::SUM); }),
                "[cohort] all_reduce_coalesced needs at least one tensor");
  barrier();
  destroy_process_group();
}

TEST(FunctionalCollectives, WrongArgumentsMessage) { run_workers("functional_arguments").expect_success(); }

}  // namespace
}  // namespace cohort::functional
