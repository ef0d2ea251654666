// The norm found during the reduction, against a pass over the gradients after it.
#include "cohort/parallel/ddp/engines/gradient_norm.h"

#include <gtest/gtest.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <cmath>
#include <limits>

#include "cohort/parallel/ddp/distributed_data_parallel.h"
#include "cohort/parallel/ddp/hooks/noop_hook.h"
#include "cohort/parallel/optim/clip_grad.h"
#include "tests/parallel/ddp/nets.h"
#include "tests/support/inline_engine.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"

namespace cohort::ddp {
namespace {

using test::error_of;
using test::run_rank_threads;

TEST(GradientNorm, IsThatOfAllGradients) {
  for (const int world_size : {1, 2, 3}) {
    for (const auto engine : {Engine::kCohort, kInline}) {
      for (const double norm_type : {1.0, 2.0, 3.0, std::numeric_limits<double>::infinity()}) {
        run_rank_threads(world_size, [&](int rank, const Group& group) {
          Options options;
          options.process_group = group;
          options.bucket_cap_mb = 0.0005;
          options.engine = engine;
          DistributedDataParallel ddp(test::seeded_net<test::Mlp>(), options);
          ddp->track_gradient_norm(norm_type);
          for (int step = 0; step < 3; ++step) {
            ddp->zero_grad();
            ddp(test::batch_of(rank, step)).square().sum().backward();
            std::vector<at::Tensor> gradients;
            for (const auto& parameter : ddp->parameters()) gradients.push_back(parameter.grad());
            const auto expected = nn::utils::get_total_norm(gradients, norm_type);
            REQUIRE(at::allclose(ddp->gradient_norm(), expected, 1e-5));
            nn::utils::clip_grads_with_norm_(ddp->parameters(), 0.5, ddp->gradient_norm());
            REQUIRE(nn::utils::get_total_norm(gradients, norm_type).item<double>() < 0.5001);
          }
        });
      }
    }
  }
}

// What no rank uses has no part in it, whatever gradient it still has.
TEST(GradientNorm, LeavesOutWhatNoRankUses) {
  run_rank_threads(2, [](int rank, const Group& group) {
    test::Branches net;
    Options options;
    options.process_group = group;
    options.find_unused_parameters = true;
    DistributedDataParallel ddp(net, options);
    ddp->track_gradient_norm();
    net->right->weight.mutable_grad() = torch::full_like(net->right->weight, 1000);
    ddp(torch::full({2, 8}, rank + 1.0), /*use_left=*/rank == 0, /*use_right=*/false).sum().backward();
    std::vector<at::Tensor> gradients;
    for (const auto& entry : net->named_parameters()) {
      if (!entry.key().starts_with("right")) gradients.push_back(entry.value().grad());
    }
    REQUIRE(at::allclose(ddp->gradient_norm(), nn::utils::get_total_norm(gradients), 1e-4, 1e-5));
  });
}

// A rank's gradients are its own with a hook that does not average.
TEST(GradientNorm, IsThatOfTheRankWithAHook) {
  run_rank_threads(2, [](int rank, const Group& group) {
    Options options;
    options.process_group = group;
    DistributedDataParallel ddp(test::seeded_net<test::Mlp>(), options);
    ddp->track_gradient_norm();
    ddp->register_comm_hook(nullptr, noop_hook);
    ddp(test::batch_of(rank, 1)).square().sum().backward();
    std::vector<at::Tensor> gradients;
    for (const auto& parameter : ddp->parameters()) gradients.push_back(parameter.grad());
    REQUIRE(at::allclose(ddp->gradient_norm(), nn::utils::get_total_norm(gradients), 1e-5));
  });
}

TEST(GradientNorm, OfInfiniteOrderSeesWhatIsNoNumber) {
  run_rank_threads(3, [](int, const Group& group) {
    Options options;
    options.process_group = group;
    DistributedDataParallel ddp(test::seeded_net<test::Mlp>(), options);
    ddp->track_gradient_norm(std::numeric_limits<double>::infinity());
    auto weight = at::ones({4}, at::kFloat);
    weight[3] = std::numeric_limits<float>::quiet_NaN();
    (ddp(test::batch_of(0, 1)) * weight).sum().backward();
    REQUIRE(std::isnan(ddp->gradient_norm().item<float>()));
  });
}

TEST(GradientNorm, WrongUsesMessage) {
  run_rank_threads(1, [](int, const Group& group) {
    DistributedDataParallel ddp(test::Mlp(), {.process_group = group});
    test::require_equal(error_of([&] { (void)ddp->gradient_norm(); }),
                        "[cohort] gradient_norm: call track_gradient_norm first");
    test::require_equal(error_of([&] { ddp->track_gradient_norm(0); }),
                        "[cohort] track_gradient_norm: norm_type must be positive, got 0");
    ddp->track_gradient_norm();
    test::require_equal(
        error_of([&] { (void)ddp->gradient_norm(); }),
        "[cohort] gradient_norm: no backward pass has averaged gradients since track_gradient_norm was called");
    test::require_equal(error_of([&] { (void)ddp->join(); }),
                        "[cohort] join and track_gradient_norm exclude each other: ranks without data do not compute "
                        "their share of the norm. Use clip_grad_norm_ after backward.");
    torch::optim::SGD optimizer(ddp->parameters(), 0.1);
    test::require_equal(
        error_of([&] { ddp->fuse_step(optimizer); }),
        "[cohort] fuse_step and track_gradient_norm exclude each other, and each can only be called once.");
  });
}

}  // namespace
}  // namespace cohort::ddp
