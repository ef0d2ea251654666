// Steps inside of the reduction, against steps after it.
#include "cohort/parallel/zero/ddp_zero_hook.h"

#include <gtest/gtest.h>

#include "cohort/parallel/ddp/hooks/all_reduce_hook.h"
#include "cohort/parallel/ddp/hooks/compress_hooks.h"
#include "tests/parallel/zero/training.h"
#include "tests/support/rank_threads.h"

namespace cohort::ddp {
namespace {

using test::error_of;
using test::Parameters;
using test::run_rank_threads;

enum class Way { kSeparate, kAfter, kInterleaved };

struct OverlapRun {
  Way way = Way::kSeparate;
  bool compresses = false;
  bool is_static = false;
  int micro_batches = 1;
  int num_steps = 6;
};

Options small_buckets(const Group& group) {
  Options options;
  options.process_group = group;
  options.bucket_cap_mb = 0.0005;
  return options;
}

void register_hook(auto& ddp, const Group& group, ZeroRedundancyOptimizer& zero, Way way, auto hook) {
  if (way == Way::kAfter) {
    ddp->register_comm_hook(group, hook_with_zero_step(hook, zero));
  } else {
    ddp->register_comm_hook(group, hook_with_zero_step_interleaved(hook, zero));
  }
}

// Losses, and then parameters. The rate is halved after three steps, as by a schedule.
Parameters train(int rank, const Group& group, test::MakeOptimizer make, const OverlapRun& run) {
  auto net = test::seeded_net<test::Mlp>();
  auto options = small_buckets(group);
  options.static_graph = run.is_static;
  DistributedDataParallel ddp(net, options);
  const auto groups = test::two_groups(ddp->parameters(), make);
  const auto hook = run.compresses ? fp16_compress_hook : allreduce_hook;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  if (run.way == Way::kSeparate) {
    optimizer = make(groups);
    ddp->register_comm_hook(group, hook);
  } else {
    auto zero = std::make_unique<ZeroRedundancyOptimizer>(
        groups, make, ZeroOptions{.process_group = group, .overlap_with_ddp = true});
    register_hook(ddp, group, *zero, run.way, hook);
    optimizer = std::move(zero);
  }
  Parameters results;
  for (int step = 0; step < run.num_steps; ++step) {
    optimizer->zero_grad();
    for (int i = 0; i < run.micro_batches; ++i) {
      std::unique_ptr<NoSync> local;
      if (i + 1 < run.micro_batches) local.reset(new NoSync(ddp->no_sync()));
      const auto loss =
          torch::mse_loss(ddp(test::batch_of(rank, 10 * step + i)), test::batch_of(100 + rank, 10 * step + i, 4));
      loss.backward();
      results.push_back(loss.detach());
    }
    for (const auto& parameter : ddp->parameters()) REQUIRE(parameter.grad().defined());
    if (run.way == Way::kSeparate) optimizer->step();
    if (step != 2) continue;
    for (auto& param_group : optimizer->param_groups())
      param_group.options().set_lr(param_group.options().get_lr() / 2);
  }
  const auto parameters = ddp->parameters();
  results.insert(results.end(), parameters.begin(), parameters.end());
  return results;
}

class ZeroOverlap : public testing::TestWithParam<test::OptimizerKind> {};

TEST_P(ZeroOverlap, EqualsTheStepAfterTheReductionBitwise) {
  for (const int world_size : {1, 2, 3}) {
    run_rank_threads(world_size, [](int rank, const Group& group) {
      const auto expected = train(rank, group, GetParam().make, {});
      test::require_same(train(rank, group, GetParam().make, {.way = Way::kAfter}), expected);
      test::require_same(train(rank, group, GetParam().make, {.way = Way::kInterleaved}), expected);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers, ZeroOverlap, testing::ValuesIn(test::kOptimizerKinds),
                         [](const auto& info) { return info.param.name; });

struct ComplexScaleImpl : torch::nn::Module {
  ComplexScaleImpl() {
    first = register_parameter("first", at::complex(torch::ones({3}), torch::arange(3.0)));
    second = register_parameter("second", at::complex(torch::arange(2.0), torch::ones({2})));
  }
  at::Tensor forward(const at::Tensor& x) { return at::real((first * x).sum() * second.sum()); }
  at::Tensor first, second;
};
TORCH_MODULE(ComplexScale);

// Hooks see the real view of complex gradients; the step takes complex ones.
TEST(ZeroHook, UpdatesComplexParameters) {
  run_rank_threads(2, [](int rank, const Group& group) {
    const auto x = at::complex(torch::arange(1.0, 4.0), torch::ones({3})) * (rank + 1);
    const auto trained = [&](bool overlaps) {
      ComplexScale net;
      DistributedDataParallel ddp(net, {.process_group = group});
      test::ParamGroups groups;
      groups.emplace_back(ddp->parameters());
      std::unique_ptr<torch::optim::Optimizer> optimizer;
      if (overlaps) {
        auto zero = std::make_unique<ZeroRedundancyOptimizer>(
            groups, test::make_sgd, ZeroOptions{.process_group = group, .overlap_with_ddp = true});
        ddp->register_comm_hook(group, hook_with_zero_step(allreduce_hook, *zero));
        optimizer = std::move(zero);
      } else {
        optimizer = test::make_sgd(groups);
      }
      for (int step = 0; step < 3; ++step) {
        optimizer->zero_grad();
        ddp(x).backward();
        optimizer->step();
      }
      return std::pair(net->first.detach().clone(), net->second.detach().clone());
    };
    const auto [first, second] = trained(true);
    const auto [expected_first, expected_second] = trained(false);
    if (at::allclose(first, expected_first) && at::allclose(second, expected_second)) return;
    throw std::runtime_error(c10::str(first, second, "\nnot\n", expected_first, expected_second));
  });
}

TEST(ZeroHook, FollowsOtherHooksStaticGraphsAndAccumulatedGradients) {
  run_rank_threads(2, [](int rank, const Group& group) {
    for (const auto& base : {OverlapRun{.compresses = true}, OverlapRun{.is_static = true},
                             OverlapRun{.micro_batches = 3, .num_steps = 3}}) {
      const auto expected = train(rank, group, test::make_adam, base);
      for (const auto way : {Way::kAfter, Way::kInterleaved}) {
        auto run = base;
        run.way = way;
        test::require_same(train(rank, group, test::make_adam, run), expected);
      }
    }
  });
}

TEST(ZeroHook, KeepsOnlyTheOwnPartOfTheState) {
  run_rank_threads(2, [](int rank, const Group& group) {
    auto net = test::seeded_net<test::Mlp>();
    DistributedDataParallel ddp(net, small_buckets(group));
    ZeroRedundancyOptimizer zero(ddp->parameters(), test::make_adam,
                                 {.process_group = group, .overlap_with_ddp = true});
    register_hook(ddp, group, zero, Way::kInterleaved, allreduce_hook);
    for (int step = 0; step < 3; ++step)
      torch::mse_loss(ddp(test::batch_of(rank, step)), torch::zeros({4, 4})).backward();
    int64_t num_elements = 0;
    for (const auto& own : zero.partition()[rank].front()) num_elements += own.numel();
    REQUIRE(test::num_state_bytes(zero.optim()) == 2 * 4 * num_elements);
    zero.consolidate_state_dict();
    if (rank != 0) return;
    int64_t of_all = 0;
    for (const auto& parameter : ddp->parameters()) of_all += parameter.numel();
    REQUIRE(test::num_state_bytes(zero.state_dict()) == 2 * 4 * of_all);
    for (const auto& [parameter, state] : zero.state_dict().state()) {
      REQUIRE(static_cast<torch::optim::AdamParamState&>(*state).step() == 3);
    }
  });
}

// A rank without data takes part in the updates of the others: it may own parameters.
TEST(ZeroHook, UnevenInputsInAJoin) {
  run_rank_threads(2, [](int rank, const Group& group) {
    for (const auto way : {Way::kAfter, Way::kInterleaved}) {
      Parameters results[2];
      for (const bool overlaps : {false, true}) {
        auto net = test::seeded_net<test::Mlp>();
        DistributedDataParallel ddp(net, small_buckets(group));
        ZeroRedundancyOptimizer zero(ddp->parameters(), test::make_sgd,
                                     {.process_group = group, .overlap_with_ddp = true});
        torch::optim::SGD plain(ddp->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
        if (overlaps) {
          register_hook(ddp, group, zero, way, allreduce_hook);
        } else {
          ddp->register_comm_hook(group, allreduce_hook);
        }
        {
          const auto join = ddp->join();
          for (int step = 0; step < 2 + 2 * rank; ++step) {
            ddp->zero_grad();
            torch::mse_loss(ddp(test::batch_of(rank, step)), torch::zeros({4, 4})).backward();
            if (!overlaps) plain.step();
          }
        }
        results[overlaps] = ddp->parameters();
      }
      test::require_same(results[1], results[0]);
    }
  });
}

// Of a parameter that DistributedDataParallel reduces, but the optimizer does not hold.
TEST(ZeroHook, LeavesParametersOfNobodyAlone) {
  run_rank_threads(2, [](int, const Group& group) {
    auto net = test::seeded_net<test::Mlp>();
    DistributedDataParallel ddp(net, small_buckets(group));
    const auto before = net->second->weight.detach().clone();
    ZeroRedundancyOptimizer zero(Parameters{net->first->weight, net->third->weight}, test::make_sgd,
                                 {.process_group = group, .overlap_with_ddp = true});
    const auto held = net->third->weight.detach().clone();
    register_hook(ddp, group, zero, Way::kAfter, allreduce_hook);
    torch::mse_loss(ddp(torch::ones({4, 8})), torch::zeros({4, 4})).backward();
    REQUIRE(at::equal(net->second->weight, before));
    REQUIRE(!at::equal(net->third->weight, held));
  });
}

TEST(ZeroHook, WhatItRefusesMessage) {
  run_rank_threads(1, [](int, const Group& group) {
    const auto parameter = torch::ones({3}, at::requires_grad());
    ZeroRedundancyOptimizer separate(Parameters{parameter}, test::make_sgd, {.process_group = group});
    REQUIRE_EQUAL(error_of([&] { hook_with_zero_step(allreduce_hook, separate); }),
                  "ZeroRedundancyOptimizer must be constructed with `overlap_with_ddp=True` to use this hook properly");

    testing::internal::CaptureStderr();
    ZeroRedundancyOptimizer zero(Parameters{parameter}, test::make_sgd,
                                 {.process_group = group, .parameters_as_bucket_view = true, .overlap_with_ddp = true});
    REQUIRE_EQUAL(testing::internal::GetCapturedStderr(),
                  "[cohort] warning: `parameters_as_bucket_view=True` will be ignored since `overlap_with_ddp=True`; "
                  "instead, a different bucketing strategy will be used\n");
    testing::internal::CaptureStderr();
    parameter.mutable_grad() = torch::ones({3});
    REQUIRE(!zero.step().defined());
    REQUIRE_EQUAL(testing::internal::GetCapturedStderr(),
                  "[cohort] warning: `step()` should not be included in the training loop when "
                  "`overlap_with_ddp=True`\n");
    REQUIRE(at::equal(parameter, torch::ones({3})));

    auto hook = hook_with_zero_step_interleaved(allreduce_hook, zero);
    GradBucket second(1, 2, torch::ones({3}), {parameter});
    REQUIRE_EQUAL(error_of([&] { hook(group, second); }),
                  "[cohort] a hook with ZeRO's step must see every bucket of a step, but one was left out. It cannot "
                  "be used with "
                  "skip_all_reduce_unused_params, or after a failed step.");
    GradBucket first(0, 2, torch::ones({3}), {parameter});
    hook(group, first);
    REQUIRE(
        error_of([&] { hook(group, first); }).starts_with("[cohort] a hook with ZeRO's step must see every bucket"));
    parameter.requires_grad_(false);
    REQUIRE_EQUAL(
        error_of([&] { hook(group, first); }),
        "ZeroRedundancyOptimizer with `overlap_with_ddp=True` does not support changing parameter trainability "
        "at run time");
  });
}

}  // namespace
}  // namespace cohort::ddp
