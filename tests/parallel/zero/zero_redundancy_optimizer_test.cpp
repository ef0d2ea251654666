// Steps of ZeRO against those of DistributedDataParallel with the same optimizer undivided. Python's numbers:
// tests/e2e/parallel/zero_test.py; the state: zero_state_test.cpp.
#include "cohort/parallel/zero/zero_redundancy_optimizer.h"

#include <gtest/gtest.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/schedulers/step_lr.h>

#include <chrono>
#include <optional>
#include <thread>

#include "cohort/comm/collectives/collectives.h"
#include "tests/parallel/zero/training.h"
#include "tests/support/rank_threads.h"

namespace cohort {
namespace {

using test::error_of;
using test::Parameters;
using test::run_rank_threads;

ddp::Options ddp_options(const Group& group) {
  ddp::Options options;
  options.process_group = group;
  return options;
}

// Ten steps; the scheduler changes the rate every three. `zero`: as options, or undivided.
Parameters train(int rank, const Group& group, test::MakeOptimizer make, const std::optional<ZeroOptions>& zero) {
  auto net = test::seeded_net<test::Mlp>();
  DistributedDataParallel ddp(net, ddp_options(group));
  auto groups = test::two_groups(ddp->parameters(), make);
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  if (zero) {
    optimizer = std::make_unique<ZeroRedundancyOptimizer>(std::move(groups), make, *zero);
  } else {
    optimizer = make(std::move(groups));
  }
  torch::optim::StepLR scheduler(*optimizer, 3, 0.5);
  for (int step = 0; step < 10; ++step) {
    optimizer->zero_grad();
    torch::mse_loss(ddp(test::batch_of(rank, step)), test::batch_of(100 + rank, step, 4)).backward();
    optimizer->step();
    scheduler.step();
  }
  return ddp->parameters();
}

class ZeroOf : public testing::TestWithParam<test::OptimizerKind> {};

TEST_P(ZeroOf, EqualsTheUndividedOptimizerBitwise) {
  for (const int world_size : {1, 2, 3, 4}) {
    run_rank_threads(world_size, [](int rank, const Group& group) {
      const auto expected = train(rank, group, GetParam().make, {});
      for (const bool has_buckets : {false, true}) {
        const ZeroOptions options{.process_group = group, .parameters_as_bucket_view = has_buckets};
        test::require_same(train(rank, group, GetParam().make, options), expected);
      }
      const ZeroOptions in_one{.process_group = group, .one_memory = true};
      test::require_same(train(rank, group, GetParam().make, in_one), expected);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers, ZeroOf, testing::ValuesIn(test::kOptimizerKinds),
                         [](const auto& info) { return info.param.name; });

at::Tensor leaf(int64_t size, double value = 0) { return torch::full({size}, value).requires_grad_(); }

ZeroRedundancyOptimizer plain_sgd(Parameters params, const Group& group, bool has_buckets = false, double rate = 1) {
  return ZeroRedundancyOptimizer::make<torch::optim::SGD>(
      std::move(params), torch::optim::SGDOptions(rate),
      {.process_group = group, .parameters_as_bucket_view = has_buckets});
}

void require_value(const at::Tensor& actual, double expected) {
  if (at::equal(actual.detach(), torch::full_like(actual, expected))) return;
  throw std::runtime_error(c10::str("expected ", expected, ", got ", actual));
}

// The gradients differ by rank: every rank has the owner's result.
TEST(Zero, TheOwnersGradientCounts) {
  run_rank_threads(3, [](int rank, const Group& group) {
    for (const bool has_buckets : {false, true}) {
      const Parameters params{leaf(1), leaf(4), leaf(3), leaf(2)};  // the owners: 2, 0, 1, 2
      auto zero = plain_sgd(params, group, has_buckets);
      for (size_t i = 0; i < params.size(); ++i) {
        params[i].mutable_grad() = torch::full_like(params[i], 10.0 * static_cast<double>(i) + rank);
      }
      zero.step();
      require_value(params[0], -2);
      require_value(params[1], -10);
      require_value(params[2], -21);
      require_value(params[3], -32);
      zero.zero_grad();
      REQUIRE(!params[3].grad().defined());
    }
  });
}

// On Gloo, too, where every rank has its own.
TEST(Zero, OneMemoryHasTheOwnersValues) {
  run_rank_threads(3, [](int rank, const Group& group) {
    const Parameters params{leaf(1), leaf(4), leaf(3), leaf(2)};  // the owners: 2, 0, 1, 2
    const auto late = leaf(6, 5);
    ZeroRedundancyOptimizer zero = ZeroRedundancyOptimizer::make<torch::optim::SGD>(
        params, torch::optim::SGDOptions(1), {.process_group = group, .one_memory = true});
    zero.add_param_group(torch::optim::OptimizerParamGroup({late}));
    const auto closure = [&] {
      zero.zero_grad();
      auto loss = late.sum() * (10.0 + rank);
      for (size_t i = 0; i < params.size(); ++i) loss = loss + params[i].sum() * (10.0 * static_cast<double>(i) + rank);
      loss.backward();
      return loss;
    };
    require_value(zero.step(closure), 30.0 * (10 + rank));
    require_value(params[0], -2);
    require_value(params[1], -10);
    require_value(params[2], -21);
    require_value(params[3], -32);
    int owner = 0;
    while (zero.partition()[owner][1].empty()) ++owner;
    require_value(late, -5.0 - owner);
  });
}

TEST(Zero, OneMemoryWaitsForTheOwners) {
  run_rank_threads(2, [](int rank, const Group& group) {
    const Parameters params{leaf(4), leaf(3)};  // the owners: 0, 1
    ZeroRedundancyOptimizer zero = ZeroRedundancyOptimizer::make<torch::optim::SGD>(
        params, torch::optim::SGDOptions(1), {.process_group = group, .one_memory = true});
    for (int step = 1; step <= 4; ++step) {
      for (const auto& parameter : params) parameter.mutable_grad() = at::ones_like(parameter);
      const int late = step % 2;
      if (rank == late) std::this_thread::sleep_for(std::chrono::milliseconds(50));
      zero.step();
      for (const auto& parameter : params) require_value(parameter, -step);
      barrier({.group = group});
    }
  });
}

TEST(Zero, MoreRanksThanParameters) {
  run_rank_threads(4, [](int rank, const Group& group) {
    for (const bool has_buckets : {false, true}) {
      const auto only = leaf(5);
      auto zero = plain_sgd({only}, group, has_buckets);
      only.mutable_grad() = torch::full_like(only, 1.0 + rank);
      zero.step();
      require_value(only, -1);
      zero.consolidate_state_dict(3);
      REQUIRE((error_of([&] { zero.state_dict(); }) == "(no error)") == (rank == 3));
    }
  });
}

TEST(Zero, AParameterWithoutAGradientOnSomeRank) {
  run_rank_threads(2, [](int rank, const Group& group) {
    const Parameters params{leaf(4, 7), leaf(3, 7)};  // the owners: 0, 1
    auto zero = plain_sgd(params, group);
    if (rank == 1) {
      for (const auto& param : params) param.mutable_grad() = torch::ones_like(param);
    }
    zero.step();
    require_value(params[0], 7);
    require_value(params[1], 6);
  });
}

// Without bucket views a frozen parameter is broadcast, too, as PyTorch does.
TEST(Zero, ParametersThatAreFrozenAndThawed) {
  run_rank_threads(2, [](int rank, const Group& group) {
    const Parameters params{leaf(4), leaf(4), leaf(2)};
    params[2].requires_grad_(false);
    auto zero = plain_sgd(params, group, /*has_buckets=*/true);
    const auto step = [&] {
      for (const auto& param : params) {
        param.mutable_grad() = param.requires_grad() ? torch::full_like(param, 1.0 + rank) : at::Tensor();
      }
      zero.step();
    };
    step();
    require_value(params[0], -1);
    require_value(params[1], -2);
    require_value(params[2], 0);
    params[2].requires_grad_(true);
    params[1].requires_grad_(false);
    step();
    require_value(params[0], -2);
    require_value(params[1], -2);
    require_value(params[2], -1);
  });
}

TEST(Zero, ChangedTrainabilityMessage) {
  run_rank_threads(1, [](int, const Group& group) {
    const Parameters params{leaf(4), leaf(4)};
    auto zero = plain_sgd(params, group);
    zero.step();
    params[0].requires_grad_(false);
    testing::internal::CaptureStderr();
    zero.step();
    zero.step();
    REQUIRE_EQUAL(
        testing::internal::GetCapturedStderr(),
        "[cohort] warning: ZeroRedundancyOptimizer detected that the trainable parameters changed; rebuilding "
        "the parameter buckets if enabled\n");
  });
}

TEST(Zero, BucketsKeepTheLayoutOfParameters) {
  run_rank_threads(2, [](int rank, const Group& group) {
    const auto wide =
        torch::arange(48.0).view({2, 3, 2, 4}).contiguous(at::MemoryFormat::ChannelsLast).requires_grad_();
    const auto gaps = torch::arange(12.0).view({3, 4}).narrow(1, 0, 2).requires_grad_();
    const auto strides = wide.strides().vec();
    auto zero = plain_sgd({wide, gaps}, group, /*has_buckets=*/true, 0.5);
    REQUIRE(wide.strides() == strides);
    REQUIRE(gaps.is_contiguous());
    REQUIRE(at::equal(gaps, torch::arange(12.0).view({3, 4}).narrow(1, 0, 2)));
    wide.mutable_grad() = torch::full({2, 3, 2, 4}, 2.0 * (1 - rank));
    gaps.mutable_grad() = torch::full({3, 2}, 2.0 * rank);
    zero.step();
    REQUIRE(at::equal(wide.detach(), torch::arange(48.0).view({2, 3, 2, 4}) - 1));
    REQUIRE(at::equal(gaps.detach(), torch::arange(12.0).view({3, 4}).narrow(1, 0, 2) - 1));
  });
}

TEST(Zero, BucketsAreOneTensorPerOwner) {
  run_rank_threads(2, [](int, const Group& group) {
    const Parameters params{leaf(4, 1), leaf(3, 2), leaf(2, 3), leaf(1, 4)};
    auto zero = plain_sgd(params, group, /*has_buckets=*/true);
    for (const auto& own : zero.partition()) {
      for (const auto& param : own.front()) {
        REQUIRE(param.storage().nbytes() == 5 * sizeof(float));
        REQUIRE(param.storage().is_alias_of(own.front().front().storage()));
      }
    }
    for (int i = 0; i < 4; ++i) require_value(params[i], i + 1);
  });
}

// By the class itself, or by whoever knows the base class only.
TEST(Zero, GroupsThatAreAddedLater) {
  run_rank_threads(2, [](int rank, const Group& group) {
    for (const bool has_buckets : {false, true}) {
      for (const bool by_base : {false, true}) {
        const Parameters params{leaf(4), leaf(3), leaf(2), leaf(6)};
        auto zero = plain_sgd({params[0], params[1]}, group, has_buckets);
        torch::optim::OptimizerParamGroup late(
            {params[2], params[3]}, std::make_unique<torch::optim::SGDOptions>(torch::optim::SGDOptions(10)));
        if (by_base) {
          static_cast<torch::optim::Optimizer&>(zero).add_param_group(late);
        } else {
          zero.add_param_group(late);
        }
        for (const auto& param : params) param.mutable_grad() = torch::full_like(param, 1.0 + rank);
        zero.step();
        require_value(params[0], -1);
        require_value(params[1], -2);
        require_value(params[2], -10);
        require_value(params[3], -20);
        REQUIRE(zero.optim().param_groups().size() == 2);
      }
    }
  });
}

TEST(Zero, StepGivesTheClosuresLoss) {
  run_rank_threads(2, [](int rank, const Group& group) {
    const auto param = leaf(2, 3);
    auto zero = plain_sgd({param}, group);
    const auto loss = zero.step([&] {
      zero.zero_grad();
      auto sum = (param * (1 + rank)).sum();
      sum.backward();
      return sum;
    });
    require_value(loss, 6 * (1 + rank));
    require_value(param, 2);
  });
}

// Whoever holds a reference to the options goes on with it.
TEST(Zero, OptionsStayWhereTheyAre) {
  run_rank_threads(2, [](int, const Group& group) {
    const auto param = leaf(2);
    auto zero = plain_sgd({param}, group);
    auto& options = static_cast<torch::optim::SGDOptions&>(zero.param_groups().front().options());
    for (const double rate : {1.0, 4.0}) {
      options.lr(rate);
      param.mutable_grad() = torch::ones({2});
      zero.step();
      REQUIRE(&zero.param_groups().front().options() == &options);
    }
    require_value(param, -5);
    REQUIRE(zero.param_groups().front().params().size() == 1);
  });
}

TEST(Zero, OverASubgroup) {
  run_rank_threads(4, [](int rank, const Group& group) {
    const auto half = test::split_rank_threads(group, {{0, 1}, {2, 3}});
    const Parameters params{leaf(4), leaf(3)};
    auto zero = plain_sgd(params, half);
    for (const auto& param : params) param.mutable_grad() = torch::full_like(param, 1.0 + rank);
    zero.step();
    require_value(params[0], rank < 2 ? -1 : -3);
    require_value(params[1], rank < 2 ? -2 : -4);
  });
}

// What a rank without data must do before it takes part in a step: its gradients are those of the ranks with data.
class GivesGradients final : public Joinable {
 public:
  GivesGradients(Group group, at::Tensor param) : group_(std::move(group)), param_(std::move(param)) {}
  std::unique_ptr<JoinHook> join_hook(const JoinOptions&) override {
    struct Hook final : JoinHook {
      explicit Hook(at::Tensor to) : param(std::move(to)) {}
      void main_hook() override { param.mutable_grad() = torch::ones_like(param); }
      at::Tensor param;
    };
    return std::make_unique<Hook>(param_);
  }
  c10::Device join_device() const override { return c10::kCPU; }
  Group join_process_group() const override { return group_; }

 private:
  Group group_;
  at::Tensor param_;
};

// Rank 0, whose data end first, owns the parameter; rank 2 takes 4 steps.
TEST(Zero, UnevenInputsInAJoin) {
  run_rank_threads(3, [](int rank, const Group& group) {
    const auto param = leaf(2);
    auto zero = plain_sgd({param}, group);
    GivesGradients gradients(group, param);
    {
      const Join join({zero, gradients});
      for (int i = 0; i < 2 + rank; ++i) {
        param.mutable_grad() = torch::ones_like(param);
        zero.step();
      }
    }
    // The first step that rank 0 shadows has the gradient of its last.
    require_value(param, -4);
    REQUIRE(zero.join_device() == c10::kCPU && zero.join_process_group() == group);
  });
}

TEST(Zero, EarlyTerminationMessage) {
  run_rank_threads(2, [](int rank, const Group& group) {
    const auto param = leaf(2);
    auto zero = plain_sgd({param}, group);
    REQUIRE_EQUAL(error_of([&] {
                    const Join join({zero}, {.throw_on_early_termination = true});
                    for (int i = 0; i < 1 + rank; ++i) zero.step();
                  }),
                  rank == 0 ? "Rank 0 exhausted all inputs."
                            : "Detected at least one rank that exhausted inputs. Throwing across all ranks.");
  });
}

TEST(Zero, ParametersThatItRefusesMessage) {
  run_rank_threads(1, [](int, const Group& group) {
    const auto a = leaf(2);
    const auto error_with = [&](ZeroRedundancyOptimizer::ParamGroups groups) {
      return error_of([&] {
        ZeroRedundancyOptimizer::make<torch::optim::SGD>(groups, torch::optim::SGDOptions(1), {.process_group = group});
      });
    };
    REQUIRE_EQUAL(error_with({}), "ZeroRedundancyOptimizer got an empty parameter list");
    REQUIRE_EQUAL(error_with({Parameters(), Parameters()}), "ZeroRedundancyOptimizer got an empty parameter list");
    REQUIRE_EQUAL(error_with({Parameters{a}, Parameters{torch::zeros({2}, at::kDouble)}}),
                  "ZeroRedundancyOptimizer only supports using the same dense type for all parameters but got both "
                  "torch.FloatTensor and torch.DoubleTensor");
    REQUIRE_EQUAL(error_with({Parameters{torch::zeros({2, 2}).to_sparse()}}),
                  "ZeroRedundancyOptimizer only supports using the same dense type for all parameters but got "
                  "torch.sparse.FloatTensor");
    REQUIRE_EQUAL(error_with({Parameters{a}, Parameters{a}}),
                  "some parameters appear in more than one parameter group");
    REQUIRE_EQUAL(
        error_of([&] {
          ZeroRedundancyOptimizer::make<torch::optim::LBFGS>(Parameters{a}, torch::optim::LBFGSOptions(1),
                                                             {.process_group = group});
        }),
        "[cohort] ZeroRedundancyOptimizer cannot partition LBFGS: its step depends on all parameters together");

    auto zero = plain_sgd({a}, group);
    REQUIRE_EQUAL(error_of([&] { zero.add_param_group(Parameters{a}); }),
                  "some parameters appear in more than one parameter group");
    REQUIRE_EQUAL(error_of([&] { zero.add_param_group(Parameters{torch::zeros({2}, at::kHalf)}); }),
                  "ZeroRedundancyOptimizer only supports using the same dense type for all parameters but got both "
                  "torch.FloatTensor and torch.HalfTensor");
    REQUIRE(zero.param_groups().size() == 1);
    zero.add_parameters({leaf(3)});
    REQUIRE_EQUAL(error_of([&] { zero.step(); }),
                  "[cohort] ZeroRedundancyOptimizer: the parameters of a group have changed since it was partitioned "
                  "among the ranks. Add parameters with add_param_group.");
  });
}

}  // namespace
}  // namespace cohort
