// Against Python's numbers: tests/e2e/parallel/optim_test.py.
#include "cohort/parallel/optim/model_averager.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/sgd.h>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/group/subgroups.h"
#include "cohort/parallel/optim/average_parameters.h"
#include "tests/support/rank_processes.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"

namespace cohort::optim {
namespace {

using test::error_of;
using test::run_rank_threads;
using test::run_workers;

at::Tensor parameter_of(int rank) {
  auto parameter = at::full({3}, static_cast<double>(rank)).set_requires_grad(true);
  parameter.mutable_grad() = at::ones({3});
  return parameter;
}

bool holds(const at::Tensor& parameter, double value) { return at::equal(parameter.detach(), at::full({3}, value)); }

TEST(ModelAverager, AveragesInPlaceWhateverTheDtypeAndLayout) {
  run_rank_threads(2, [](int rank, const Group& group) {
    const auto whole = parameter_of(rank);
    const auto turned = (at::arange(6, at::kDouble).view({2, 3}) + rank).t();
    const auto held = whole.detach();
    average_parameters({whole, turned}, group);
    REQUIRE(holds(whole, 0.5));
    REQUIRE(holds(held, 0.5));
    REQUIRE(at::equal(turned, at::arange(6, at::kDouble).view({2, 3}).t() + 0.5));
    REQUIRE(whole.scalar_type() == at::kFloat && whole.requires_grad() && whole.is_leaf());
  });
}

TEST(ModelAverager, LeavesOutParametersWithoutAGradient) {
  run_rank_threads(2, [](int rank, const Group& group) {
    const auto used = parameter_of(rank);
    const auto unused = at::full({3}, static_cast<double>(rank)).set_requires_grad(true);
    average_parameters_or_parameter_groups({unused, used}, group);
    REQUIRE(holds(used, 0.5) && holds(unused, rank));
    torch::optim::SGD optimizer(std::vector<torch::optim::OptimizerParamGroup>{{{unused}}, {{used}}}, 0.1);
    REQUIRE(get_params_to_average(optimizer).size() == 1);
    REQUIRE(get_params_to_average(optimizer)[0].is_same(used));
    REQUIRE_EQUAL(error_of([&] { average_parameters_or_parameter_groups(unused, group); }),
                  "[cohort] average_parameters: there are no parameters to average. Parameters without a gradient are "
                  "skipped; average after backward(), before zero_grad()");
  });
}

TEST(ModelAverager, PeriodicBeginsAfterTheWarmUpAndCountsEveryStep) {
  run_rank_threads(2, [](int rank, const Group& group) {
    PeriodicModelAverager averager(/*period=*/3, /*warmup_steps=*/2, group);
    std::string averaged;
    for (int i = 0; i < 9; ++i) {
      const auto parameter = parameter_of(rank);
      averager.average_parameters(parameter);
      averaged += holds(parameter, 0.5) ? 'a' : '-';
    }
    REQUIRE_EQUAL(averaged, "--a--a--a");
    REQUIRE(averager.step == 9);
  });
}

TEST(ModelAverager, PeriodicRefusalsMessage) {
  run_rank_threads(1, [](int, const Group& group) {
    REQUIRE_EQUAL(error_of([&] { PeriodicModelAverager(2, -1, group); }),
                  "Arg ``warmup_steps`` must be a non-negative number.");
    REQUIRE_EQUAL(error_of([&] { PeriodicModelAverager(0, 0, group); }), "Arg ``period`` must be a positive value.");
  });
}

TEST(ModelAverager, PeriodOfOneWarns) {
  run_rank_threads(1, [](int, const Group& group) {
    testing::internal::CaptureStderr();
    PeriodicModelAverager averager(1, 0, group);
    REQUIRE_EQUAL(
        testing::internal::GetCapturedStderr(),
        "[cohort] warning: When period is 1, no need to use model averaging because the communication cost of "
        "all-reducing parameters will be no less than the cost of all-reducing gradients by "
        "DistributedDataParallel in the backward pass. Therefore, only DistributedDataParallel should be used "
        "for this case.\n");
  });
}

TEST(ModelAverager, HierarchicalRefusalsMessage) {
  run_rank_threads(2, [](int, const Group& group) {
    const auto refused = [&](const std::vector<PeriodGroupSize>& sizes, int64_t warmup_steps = 0) {
      return error_of([&] { HierarchicalModelAverager(sizes, warmup_steps, group); });
    };
    REQUIRE_EQUAL(refused({}), "[cohort] Arg ``period_group_sizes`` must not be empty.");
    REQUIRE_EQUAL(refused({{0, 1}, {2, 2}}),
                  "The minimum period in arg ``period_group_sizes`` must be a positive value.");
    REQUIRE_EQUAL(refused({{2, 1}, {2, 2}}),
                  "[cohort] The period 2 in arg ``period_group_sizes`` must be positive and unique.");
    REQUIRE_EQUAL(
        refused({{2, 2}, {4, 4}}),
        "The last value in arg ``period_group_sizes`` 4 must be equal to the size of arg ``process_group`` 2.");
    REQUIRE_EQUAL(refused({{1, 3}, {2, 2}}),
                  "[cohort] The group size 3 of period 1 in arg ``period_group_sizes`` must divide the size of arg "
                  "``process_group`` 2.");
    REQUIRE_EQUAL(refused({{2, 2}}, -1), "Arg ``warmup_steps`` must be a non-negative number.");
  });
}

// 'p': the mean of this rank and its neighbor, 'a': of all.
COHORT_WORKER(averages_by_hierarchy) {
  init_process_group({.backend = test::backend_of_tests()});
  HierarchicalModelAverager averager({{2, 2}, {4, 4}}, /*warmup_steps=*/1);
  const int rank = get_rank();
  const double pair = rank < 2 ? 0.5 : 2.5;
  std::string averaged;
  for (int i = 0; i < 9; ++i) {
    const auto parameter = parameter_of(rank);
    averager.average_parameters(parameter);
    averaged += holds(parameter, rank) ? '-' : holds(parameter, pair) ? 'p' : holds(parameter, 1.5) ? 'a' : '?';
  }
  REQUIRE_EQUAL(averaged, "--p-a-p-a");
  REQUIRE(get_world_size(averager.period_process_groups()[0].second) == 2);

  const auto others = new_group({0, 1});
  const auto parameter = parameter_of(rank);
  average_parameters(parameter, others);
  REQUIRE(holds(parameter, rank < 2 ? 0.5 : rank));
  PeriodicModelAverager everywhere(2);
  everywhere.average_parameters(parameter);
  REQUIRE(holds(parameter, (0.5 + 0.5 + 2 + 3) / 4));
  destroy_process_group();
}

TEST(ModelAverager, TheLargestPeriodThatIsOverDecidesTheGroup) {
  run_workers("averages_by_hierarchy", {.world_size = 4}).expect_success();
}

}  // namespace
}  // namespace cohort::optim
