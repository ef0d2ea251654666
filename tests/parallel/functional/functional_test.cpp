#include "cohort/parallel/functional/functional.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/group/subgroups.h"
#include "tests/support/rank_processes.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"

namespace cohort::nn::functional {
namespace {

using test::error_of;
using test::run_workers;

at::Tensor gradient_of(const at::Tensor& loss, const at::Tensor& input) {
  return torch::autograd::grad({loss}, {input})[0];
}

at::Tensor own_numbers() { return at::arange(2, at::kDouble).add(10 * get_rank()).set_requires_grad(true); }

// What PyTorch gets wrong: roots and all_gather in a group whose ranks are not those of the world.
COHORT_WORKER(nn_in_a_shifted_subgroup) {
  init_process_group({.backend = test::backend_of_tests()});
  const auto group = new_group({1, 2});
  if (get_rank() == 0) {
    REQUIRE_EQUAL(error_of([&] { all_reduce(at::ones({1}), ReduceOp::SUM, group); }),
                  "Invalid process group specified");
    barrier();
    return destroy_process_group();
  }
  const double weight = get_rank();
  const auto x = own_numbers();
  const bool is_root = get_rank() == 2;

  const auto received = broadcast(x, 2, group);
  REQUIRE(at::equal(received, at::tensor({20., 21.})));
  REQUIRE(at::equal(gradient_of((received * weight).sum(), x), at::full({2}, is_root ? 3. : 0.)));

  const auto gathered = gather(x, 2, group);
  REQUIRE(at::equal(gathered[0], is_root ? at::tensor({10., 11.}) : at::zeros({2}, at::kDouble)));
  REQUIRE(at::equal(gradient_of((gathered[0] * 5 + gathered[1] * 7).sum() * weight, x),
                    at::full({2}, 2 * (is_root ? 7. : 5.))));

  const auto part = scatter({x, x * 2}, 2, group);
  REQUIRE(at::equal(part, at::tensor({20., 21.}) * (is_root ? 2 : 1)));
  REQUIRE(at::equal(gradient_of((part * weight).sum(), x), at::full({2}, is_root ? 5. : 0.)));

  const auto sum = reduce(x, 2, ReduceOp::SUM, group);
  if (is_root) REQUIRE(at::equal(sum, at::tensor({30., 32.})));
  REQUIRE(at::equal(gradient_of((is_root ? sum : sum * 0).sum() * weight, x), at::full({2}, 2.)));

  const auto all = all_gather(x, group);
  REQUIRE(at::equal(gradient_of((all[0] * 5 + all[1] * 7).sum() * weight, x), at::full({2}, 3 * (is_root ? 7. : 5.))));
  barrier();
  destroy_process_group();
}

TEST(NnFunctional, WorksInASubgroupThatDoesNotBeginAtZero) {
  run_workers("nn_in_a_shifted_subgroup", {.world_size = 3}).expect_success();
}

COHORT_WORKER(nn_all_gather_base) {
  init_process_group({.backend = test::backend_of_tests()});
  const auto x = own_numbers();
  const auto output = at::empty({4}, at::kDouble);
  const auto whole = _all_gather_base(output, x * x);
  REQUIRE(at::equal(output, at::tensor({0., 1., 100., 121.})));
  // Sum over both ranks of (rank + 1) * 3 * whole^2 * 2x, and its derivative, of which each rank has its own part.
  const auto loss = whole.pow(3).sum() * (get_rank() + 1);
  const auto first = torch::autograd::grad({loss}, {x}, {}, std::nullopt, true)[0];
  REQUIRE(at::equal(first.detach(), 18 * x.detach().pow(5)));
  const auto second = gradient_of(first.sum(), x);
  REQUIRE(at::equal(second, 90 * x.detach().pow(4)));
  destroy_process_group();
}

TEST(NnFunctional, AllGatherBaseHasAGradientOnGloo) { run_workers("nn_all_gather_base").expect_success(); }

COHORT_WORKER(nn_arguments) {
  init_process_group({.backend = test::backend_of_tests()});
  const auto x = own_numbers();
  REQUIRE_EQUAL(error_of([&] { scatter({x}, 0); }), "[cohort] scatter needs one tensor per rank, 2, got 1");
  REQUIRE_EQUAL(error_of([&] {
                  scatter({x, at::ones({3})}, 0);
                }),
                "[cohort] scatter needs tensors of one shape, got [2] and [3]");
  REQUIRE_EQUAL(error_of([&] { all_to_all({x}, {x, x}); }), "[cohort] all_to_all needs one tensor per rank, 2, got 1");
  REQUIRE_EQUAL(error_of([&] { broadcast(x, 2); }), "Rank 2 is out of range. Valid ranks are 0 to 1 (world_size=2)");
  barrier();
  destroy_process_group();
}

TEST(NnFunctional, WrongArgumentsMessage) { run_workers("nn_arguments").expect_success(); }

}  // namespace
}  // namespace cohort::nn::functional
