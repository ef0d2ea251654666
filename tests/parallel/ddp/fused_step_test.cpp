// The optimizer's step inside of the reduction: against the same optimizer's own step after it.
#include "cohort/parallel/ddp/engines/fused_step.h"

#include <gtest/gtest.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <memory>

#include "cohort/parallel/ddp/distributed_data_parallel.h"
#include "cohort/parallel/ddp/hooks/compress_hooks.h"
#include "cohort/parallel/optim/fused_optimizers.h"
#include "tests/parallel/ddp/nets.h"
#include "tests/support/inline_engine.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"

namespace cohort::ddp {
namespace {

using test::error_of;
using test::run_rank_threads;
using Parameters = std::vector<at::Tensor>;
using MakeOptimizer = std::unique_ptr<torch::optim::Optimizer> (*)(const Parameters&);

std::unique_ptr<torch::optim::Optimizer> sgd(const Parameters& parameters) {
  return std::make_unique<torch::optim::SGD>(parameters, torch::optim::SGDOptions(0.1));
}
std::unique_ptr<torch::optim::Optimizer> sgd_with_all(const Parameters& parameters) {
  return std::make_unique<torch::optim::SGD>(
      parameters, torch::optim::SGDOptions(0.05).momentum(0.9).weight_decay(0.1).nesterov(true));
}
std::unique_ptr<torch::optim::Optimizer> sgd_with_dampening(const Parameters& parameters) {
  return std::make_unique<torch::optim::SGD>(parameters, torch::optim::SGDOptions(0.05).momentum(0.8).dampening(0.3));
}
std::unique_ptr<torch::optim::Optimizer> adam(const Parameters& parameters) {
  return std::make_unique<torch::optim::Adam>(parameters, torch::optim::AdamOptions(0.01).weight_decay(0.1));
}
std::unique_ptr<torch::optim::Optimizer> adam_with_amsgrad(const Parameters& parameters) {
  return std::make_unique<torch::optim::Adam>(parameters, torch::optim::AdamOptions(0.01).amsgrad(true));
}
std::unique_ptr<torch::optim::Optimizer> adamw(const Parameters& parameters) {
  return std::make_unique<torch::optim::AdamW>(parameters,
                                               torch::optim::AdamWOptions(0.01).betas({0.8, 0.95}).eps(1e-6));
}
std::unique_ptr<torch::optim::Optimizer> our_adamw(const Parameters& parameters) {
  return std::make_unique<cohort::optim::AdamW>(parameters, torch::optim::AdamWOptions(0.01));
}
// The biases are decayed less and learn faster.
std::unique_ptr<torch::optim::Optimizer> adamw_of_two_groups(const Parameters& parameters) {
  std::vector<torch::optim::OptimizerParamGroup> groups;
  for (const int64_t dimensions : {1, 2}) {
    Parameters own;
    for (const auto& parameter : parameters) {
      if (parameter.dim() == dimensions) own.push_back(parameter);
    }
    const auto number = static_cast<double>(dimensions);
    groups.emplace_back(own, std::make_unique<torch::optim::AdamWOptions>(
                                 torch::optim::AdamWOptions(0.02 / number).weight_decay(0.1 * number)));
  }
  return std::make_unique<torch::optim::AdamW>(groups, torch::optim::AdamWOptions(0.01));
}

struct TrainingRun {
  bool is_fused = false;
  Engine engine = Engine::kCohort;
  bool has_hook = false;
  int micro_batches = 1;
};

// Six steps; the learning rate is halved after three, as a schedule would.
Parameters train(int rank, const Group& group, MakeOptimizer make_optimizer, const TrainingRun& run) {
  auto net = test::seeded_net<test::Mlp>();
  Options options;
  options.process_group = group;
  options.bucket_cap_mb = 0.0005;
  options.engine = run.engine;
  DistributedDataParallel ddp(net, options);
  if (run.has_hook) ddp->register_comm_hook(group, fp16_compress_hook);
  const auto optimizer = make_optimizer(ddp->parameters());
  if (run.is_fused) ddp->fuse_step(*optimizer);
  for (int step = 0; step < 6; ++step) {
    for (int i = 0; i < run.micro_batches; ++i) {
      const auto x = test::batch_of(rank, 10 * step + i);
      const auto y = test::batch_of(100 + rank, 10 * step + i, 4);
      std::unique_ptr<NoSync> local;
      if (i + 1 < run.micro_batches) local.reset(new NoSync(ddp->no_sync()));
      torch::mse_loss(ddp(x), y).backward();
    }
    for (const auto& parameter : ddp->parameters()) REQUIRE(parameter.grad().defined() == !run.is_fused);
    if (!run.is_fused) optimizer->step();
    optimizer->zero_grad();
    if (step != 2) continue;
    for (auto& param_group : optimizer->param_groups())
      param_group.options().set_lr(param_group.options().get_lr() / 2);
  }
  auto result = ddp->parameters();
  for (const auto& parameter : ddp->parameters()) {
    const auto& state = optimizer->state();
    const auto found = state.find(parameter.unsafeGetTensorImpl());
    if (found == state.end()) continue;
    if (const auto* of_adamw = dynamic_cast<torch::optim::AdamWParamState*>(found->second.get())) {
      result.push_back(of_adamw->exp_avg());
      result.push_back(of_adamw->exp_avg_sq());
      result.push_back(at::scalar_tensor(of_adamw->step()));
    } else if (const auto* of_sgd = dynamic_cast<torch::optim::SGDParamState*>(found->second.get())) {
      if (of_sgd->momentum_buffer().defined()) result.push_back(of_sgd->momentum_buffer());
    }
  }
  return result;
}

void require_close(const Parameters& ours, const Parameters& theirs, double tolerance = 1e-6) {
  REQUIRE(ours.size() == theirs.size());
  for (size_t i = 0; i < ours.size(); ++i) {
    if (at::allclose(ours[i], theirs[i], 10 * tolerance, tolerance)) continue;
    throw std::runtime_error(c10::str("tensor ", i, " differs by ", (ours[i] - theirs[i]).abs().max().item<double>()));
  }
}

class FusedStepOf : public testing::TestWithParam<std::pair<const char*, MakeOptimizer>> {};

TEST_P(FusedStepOf, EqualsTheStepAfterTheReduction) {
  for (const int world_size : {1, 2, 3}) {
    run_rank_threads(world_size, [](int rank, const Group& group) {
      const auto expected = train(rank, group, GetParam().second, {});
      require_close(train(rank, group, GetParam().second, {.is_fused = true}), expected);
      require_close(train(rank, group, GetParam().second, {.is_fused = true, .engine = kInline}), expected);
    });
  }
}

TEST_P(FusedStepOf, FollowsHooksAndAccumulatedGradients) {
  run_rank_threads(2, [](int rank, const Group& group) {
    const TrainingRun separate{.has_hook = true, .micro_batches = 3};
    const TrainingRun fused{.is_fused = true, .has_hook = true, .micro_batches = 3};
    // A gradient that another memory alignment rounds otherwise may be the next number of 16 bits.
    require_close(train(rank, group, GetParam().second, fused), train(rank, group, GetParam().second, separate), 1e-4);
  });
}

constexpr std::pair<const char*, MakeOptimizer> kOptimizers[] = {{"sgd", sgd},
                                                                 {"sgd_with_all", sgd_with_all},
                                                                 {"sgd_with_dampening", sgd_with_dampening},
                                                                 {"adam", adam},
                                                                 {"adam_with_amsgrad", adam_with_amsgrad},
                                                                 {"adamw", adamw},
                                                                 {"our_adamw", our_adamw},
                                                                 {"adamw_of_two_groups", adamw_of_two_groups}};
INSTANTIATE_TEST_SUITE_P(Optimizers, FusedStepOf, testing::ValuesIn(kOptimizers),
                         [](const auto& info) { return info.param.first; });

TEST(FusedStep, LeavesParametersAloneThatNoRankUses) {
  run_rank_threads(2, [](int rank, const Group& group) {
    auto net = test::seeded_net<test::Branches>();
    Options options;
    options.process_group = group;
    options.find_unused_parameters = true;
    DistributedDataParallel ddp(net, options);
    torch::optim::SGD optimizer(ddp->parameters(), 0.1);
    ddp->fuse_step(optimizer);
    const auto unused = net->right->weight.detach().clone();
    const auto used_by_one = net->left->weight.detach().clone();
    ddp(torch::full({2, 8}, rank + 1.0), /*use_left=*/rank == 1, /*use_right=*/false).sum().backward();
    REQUIRE(at::equal(net->right->weight, unused));
    REQUIRE(!net->right->weight.grad().defined());
    REQUIRE(!at::equal(net->left->weight, used_by_one));
    REQUIRE(!net->left->weight.grad().defined());
  });
}

// A state in another order of memory than the parameter's, as a file may give it.
TEST(FusedStep, WorksOnEveryLayout) {
  auto parameter = torch::randn({2, 3, 4, 4}).contiguous(at::MemoryFormat::ChannelsLast).requires_grad_();
  auto same = parameter.detach().clone().requires_grad_();
  const auto gradient = torch::randn({2, 3, 4, 4});
  torch::optim::AdamW fused({parameter}, 0.1);
  torch::optim::AdamW separate({same}, 0.1);
  FusedStep step(fused, {parameter});
  for (int i = 0; i < 3; ++i) {
    parameter.mutable_grad() = gradient.clone() * (i + 1);
    same.mutable_grad() = gradient.clone() * (i + 1);
    step.on_bucket({0});
    separate.step();
    auto& state = static_cast<torch::optim::AdamWParamState&>(*fused.state().at(parameter.unsafeGetTensorImpl()));
    state.exp_avg(state.exp_avg().contiguous());
    EXPECT_TRUE(at::allclose(parameter, same, 1e-5, 1e-6));
  }
}

TEST(FusedStep, LeavesParametersOfNobodyAlone) {
  auto held = torch::ones({3}, at::requires_grad());
  auto other = torch::ones({3}, at::requires_grad());
  torch::optim::SGD optimizer({held}, 0.5);
  FusedStep step(optimizer, {held, other});
  held.mutable_grad() = torch::ones({3});
  other.mutable_grad() = torch::ones({3});
  step.on_bucket({0, 1});
  EXPECT_TRUE(at::equal(held, torch::full({3}, 0.5)));
  EXPECT_TRUE(at::equal(other, torch::ones({3})));
  EXPECT_FALSE(held.grad().defined());
  EXPECT_TRUE(other.grad().defined());
}

TEST(FusedStep, OptimizersThatItCannotTakeMessage) {
  const auto parameter = torch::ones({3}, at::requires_grad());
  torch::optim::RMSprop another({parameter});
  EXPECT_EQ(error_of([&] { FusedStep(another, {parameter}); }),
            "[cohort] fuse_step takes torch::optim::SGD, Adam or AdamW, not this optimizer. Call its step() after "
            "backward instead.");
  torch::optim::SGD of_others({torch::ones({3}, at::requires_grad())}, 0.1);
  EXPECT_EQ(error_of([&] { FusedStep(of_others, {parameter}); }),
            "[cohort] fuse_step: the optimizer holds none of the reduced parameters. Make it from the parameters of "
            "the wrapped module.");
  const auto gaps = torch::ones({3, 4}).narrow(1, 0, 2).requires_grad_();
  torch::optim::SGD of_gaps({gaps}, 0.1);
  EXPECT_EQ(error_of([&] { FusedStep(of_gaps, {gaps}); }),
            "[cohort] fuse_step: a parameter of sizes [3, 2] and strides [4, 1] has gaps in its memory");
}

TEST(FusedStep, ReducersThatCannotMessage) {
  run_rank_threads(1, [](int, const Group& group) {
    const auto parameter = torch::ones({3}, at::requires_grad());
    torch::optim::SGD optimizer({parameter}, 0.1);
    ReducerOptions options;
    options.process_group = group;
    Reducer reducer({parameter}, options);
    reducer.fuse_step(optimizer);
    test::require_equal(
        error_of([&] { reducer.fuse_step(optimizer); }),
        "[cohort] fuse_step and track_gradient_norm exclude each other, and each can only be called once.");
    options.engine = Engine::kC10d;
    Reducer of_libtorch({parameter}, options);
    test::require_equal(error_of([&] { of_libtorch.fuse_step(optimizer); }),
                        "[cohort] fuse_step and track_gradient_norm need Engine::kCohort: LibTorch's reducer does "
                        "not say when a bucket is "
                        "done.");
    options.engine = Engine::kCohort;
    options.expect_sparse_gradient = {true};
    Reducer sparse({parameter}, options);
    test::require_equal(
        error_of([&] { sparse.fuse_step(optimizer); }),
        "[cohort] fuse_step does not support sparse gradients. Call the optimizer's step() after backward instead.");
  });
}

}  // namespace
}  // namespace cohort::ddp
