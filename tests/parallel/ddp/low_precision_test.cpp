// DDP's mixed precision: dtypes at each point of a step, and its numbers beside a model that is copied in the low dtype by hand.
// tests/e2e/parallel/ddp_test.py compares with Python's, bit by bit.
#include "cohort/parallel/ddp/engines/low_precision.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/parallel/ddp/distributed_data_parallel.h"
#include "cohort/parallel/ddp/hooks/all_reduce_hook.h"
#include "tests/parallel/ddp/nets.h"
#include "tests/support/inline_engine.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"

namespace cohort::ddp {
namespace {

using test::error_of;
using test::Mlp;
using test::run_rank_threads;

constexpr auto kLow = at::kBFloat16;

Options low_options(const Group& group, std::optional<at::ScalarType> reduce_dtype = {}) {
  Options options;
  options.process_group = group;
  options.bucket_cap_mb = 0.0005;
  options.mixed_precision = MixedPrecision{.param_dtype = kLow, .reduce_dtype = reduce_dtype};
  return options;
}

void require_dtype(const std::vector<at::Tensor>& tensors, at::ScalarType dtype) {
  for (const auto& tensor : tensors) REQUIRE(tensor.scalar_type() == dtype);
}

std::vector<at::Tensor> gradients_of(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : parameters) gradients.push_back(parameter.grad());
  return gradients;
}

void require_equal_bits(const std::vector<at::Tensor>& ours, const std::vector<at::Tensor>& theirs) {
  REQUIRE(ours.size() == theirs.size());
  for (size_t i = 0; i < ours.size(); ++i) {
    REQUIRE(ours[i].scalar_type() == theirs[i].scalar_type());
    REQUIRE(at::equal(ours[i], theirs[i]));
  }
}

Mlp low_copy_of(const Mlp& net) {
  const at::NoGradGuard no_grad;
  auto copy = test::seeded_net<Mlp>();
  const auto parameters = net->parameters();
  for (size_t i = 0; i < parameters.size(); ++i) copy->parameters()[i].copy_(parameters[i]);
  copy->to(kLow);
  return copy;
}

// What the definition says: gradients of a low copy of the net, summed over the ranks in `reduce_dtype` and divided in it.
std::vector<at::Tensor> averaged_by_hand(Mlp& net, const at::Tensor& x, const Group& group,
                                         at::ScalarType reduce_dtype) {
  auto low = low_copy_of(net);
  low->forward(x.to(kLow)).square().sum().backward();
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : low->parameters()) {
    auto gradient = parameter.grad().to(reduce_dtype);
    all_reduce(gradient, {.group = group});
    gradients.push_back(gradient.div_(group->getSize()).to(at::kFloat));
  }
  return gradients;
}

class Precision : public testing::TestWithParam<Engine> {};

TEST_P(Precision, ReducesInItsDtype) {
  for (const int world_size : {1, 2}) {
    for (const auto reduce_dtype : {kLow, at::kFloat}) {
      run_rank_threads(world_size, [&](int rank, const Group& group) {
        auto net = test::seeded_net<Mlp>();
        auto options = low_options(group);
        if (reduce_dtype != kLow) options.mixed_precision->reduce_dtype = reduce_dtype;
        options.gradient_as_bucket_view = world_size == 2;
        options.engine = GetParam();
        DistributedDataParallel ddp(net, options);
        torch::optim::SGD optimizer(ddp->parameters(), 0.1);
        for (int step = 0; step < 3; ++step) {
          const auto x = test::batch_of(rank, step);
          const auto expected = averaged_by_hand(net, x, group, reduce_dtype);
          ddp(x).square().sum().backward();
          require_equal_bits(gradients_of(net->parameters()), expected);
          optimizer.step();
          for (const auto& parameter : net->parameters()) parameter.mutable_grad().reset();
        }
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Engines, Precision, testing::Values(Engine::kCohort, kInline));

TEST(DdpPrecision, ParametersAreLowFromForwardToTheEndOfBackward) {
  run_rank_threads(2, [](int rank, const Group& group) {
    auto net = test::seeded_net<Mlp>();
    net->second->weight.set_requires_grad(false);
    const auto before = net->first->weight.detach().clone();
    DistributedDataParallel ddp(net, low_options(group));
    require_dtype(net->parameters(), at::kFloat);
    const auto y = ddp(test::batch_of(rank, 0));
    REQUIRE(y.scalar_type() == kLow);
    require_dtype(net->parameters(), kLow);
    y.sum().backward();
    require_dtype(net->parameters(), at::kFloat);
    REQUIRE(at::equal(net->first->weight, before));
    REQUIRE(net->first->weight.grad().scalar_type() == at::kFloat);
    REQUIRE(net->first->weight.is_leaf() && net->first->weight.requires_grad());
  });
}

TEST(DdpPrecision, EvaluationLeavesParametersFull) {
  run_rank_threads(2, [](int rank, const Group& group) {
    auto net = test::seeded_net<Mlp>();
    DistributedDataParallel ddp(net, low_options(group));
    {
      const at::NoGradGuard no_grad;
      REQUIRE(ddp(test::batch_of(rank, 0)).scalar_type() == kLow);
    }
    require_dtype(net->parameters(), at::kFloat);
    {
      const c10::InferenceMode inference;
      ddp(test::batch_of(rank, 0));
    }
    require_dtype(net->parameters(), at::kFloat);
    ddp(test::batch_of(rank, 1)).sum().backward();
    require_dtype(net->parameters(), at::kFloat);
  });
}

// No backward pass tells that this forward pass is over.
TEST(DdpPrecision, WhatIsWrittenIntoLowParametersIsKept) {
  run_rank_threads(1, [](int rank, const Group& group) {
    auto net = test::seeded_net<Mlp>();
    DistributedDataParallel ddp(net, low_options(group));
    const auto others = net->second->weight.detach().clone();
    ddp(test::batch_of(rank, 0));
    {
      const at::NoGradGuard no_grad;
      net->first->weight.fill_(0.75);
    }
    ddp(test::batch_of(rank, 1)).sum().backward();
    REQUIRE(at::equal(net->first->weight, at::full_like(net->first->weight, 0.75)));
    REQUIRE(at::equal(net->second->weight, others));
  });
}

TEST(DdpPrecision, TwoForwardPassesBeforeOneBackward) {
  run_rank_threads(2, [](int rank, const Group& group) {
    auto net = test::seeded_net<Mlp>();
    DistributedDataParallel ddp(net, low_options(group));
    const auto a = test::batch_of(rank, 0), b = test::batch_of(rank, 1);
    const auto loss = ddp(a).sum() + ddp(b).sum();
    loss.backward();
    const auto both = gradients_of(net->parameters());
    DistributedDataParallel again(test::seeded_net<Mlp>(), low_options(group));
    again(at::cat({a, b})).sum().backward();
    const auto at_once = gradients_of(again->parameters());
    for (size_t i = 0; i < both.size(); ++i) REQUIRE(at::allclose(both[i], at_once[i], 0.02, 0.05));
    require_dtype(net->parameters(), at::kFloat);
  });
}

TEST(DdpPrecision, LocalGradientsAddUp) {
  run_rank_threads(2, [](int rank, const Group& group) {
    auto net = test::seeded_net<Mlp>();
    DistributedDataParallel ddp(net, low_options(group, at::kFloat));
    {
      const auto local = ddp->no_sync();
      ddp(test::batch_of(rank, 0)).sum().backward();
    }
    require_dtype(net->parameters(), at::kFloat);
    require_dtype(gradients_of(net->parameters()), at::kFloat);
    ddp(test::batch_of(rank, 1)).sum().backward();

    auto low = low_copy_of(net);
    for (const int step : {0, 1}) low->forward(test::batch_of(rank, step).to(kLow)).sum().backward();
    std::vector<at::Tensor> expected;
    for (const auto& parameter : low->parameters()) {
      auto gradient = parameter.grad().to(at::kFloat);
      all_reduce(gradient, {.group = group});
      expected.push_back(gradient / 2);
    }
    require_equal_bits(gradients_of(net->parameters()), expected);
  });
}

// The first gradient on rank 1 is one that was there before, so that zeros differ from it.
TEST(DdpPrecision, UnusedParameters) {
  run_rank_threads(2, [](int rank, const Group& group) {
    auto options = low_options(group);
    options.find_unused_parameters = true;
    auto net = test::seeded_net<test::Branches>();
    DistributedDataParallel ddp(net, options);
    net->right->weight.mutable_grad() = at::full({4, 4}, 3.0);
    ddp(test::batch_of(rank, 0), rank == 0, false).sum().backward();
    require_dtype(net->parameters(), at::kFloat);
    REQUIRE(at::equal(net->right->weight.grad(), at::full({4, 4}, 3.0)));  // used by nobody
    REQUIRE(!net->right->bias.grad().defined());
    auto left = net->left->bias.grad();
    REQUIRE(at::equal(left, at::full({4}, 2.0)));  // 4 rows on rank 0, nothing on rank 1
  });
}

// Products, which save the parameters themselves for backward.
struct ScalesImpl : torch::nn::Module {
  ScalesImpl() {
    first = register_parameter("first", at::full({8}, 1.0 / 3));
    second = register_parameter("second", at::full({8}, 1.0 / 7));
  }
  at::Tensor forward(const at::Tensor& x) { return x * first * second; }
  at::Tensor first, second;
};
TORCH_MODULE(Scales);

// As in distillation: the second pass is without autograd, and before the first one's backward.
TEST(DdpPrecision, APassWithoutAutogradLeavesTheGraphBeforeItAlone) {
  run_rank_threads(2, [](int rank, const Group& group) {
    const auto gradients_with = [&](bool has_other_pass) {
      Scales net;
      DistributedDataParallel ddp(net, low_options(group));
      const auto y = ddp(test::batch_of(rank, 0));
      if (has_other_pass) {
        const at::NoGradGuard no_grad;
        ddp(test::batch_of(rank, 1));
      }
      y.square().sum().backward();
      require_dtype(net->parameters(), at::kFloat);
      return gradients_of(net->parameters());
    };
    require_equal_bits(gradients_with(true), gradients_with(false));
  });
}

TEST(DdpPrecision, GradientsStayFullInAPassWithoutAutograd) {
  run_rank_threads(2, [](int rank, const Group& group) {
    auto net = test::seeded_net<Mlp>();
    DistributedDataParallel ddp(net, low_options(group, at::kFloat));
    ddp(test::batch_of(rank, 0)).square().sum().backward();
    std::vector<at::Tensor> before;
    for (const auto& gradient : gradients_of(net->parameters())) before.push_back(gradient.clone());
    {
      const at::NoGradGuard no_grad;
      ddp(test::batch_of(rank, 1));
    }
    require_equal_bits(gradients_of(net->parameters()), before);
  });
}

// Its pass brings no parameter a gradient.
TEST(DdpPrecision, AGradientPenalty) {
  run_rank_threads(2, [](int rank, const Group& group) {
    auto net = test::seeded_net<Mlp>();
    DistributedDataParallel ddp(net, low_options(group));
    const auto x = test::batch_of(rank, 0).set_requires_grad(true);
    const auto y = ddp(x);
    const auto of_x = torch::autograd::grad({y.sum()}, {x}, {}, std::nullopt, /*create_graph=*/true)[0];
    require_dtype(net->parameters(), kLow);
    (y.sum() + of_x.square().sum()).backward();
    require_dtype(net->parameters(), at::kFloat);
    require_dtype(gradients_of(net->parameters()), at::kFloat);
  });
}

TEST(DdpPrecision, AnotherGroupAfterAFailedStep) {
  run_rank_threads(1, [](int rank, const Group& group) {
    auto net = test::seeded_net<Mlp>();
    DistributedDataParallel ddp(net, low_options(group));
    ddp(test::batch_of(rank, 0));
    require_dtype(net->parameters(), kLow);
    ddp->update_process_group(group);
    require_dtype(net->parameters(), at::kFloat);
  });
}

TEST(DdpPrecision, GoesOnAfterAPassThatFailed) {
  run_rank_threads(1, [](int rank, const Group& group) {
    auto net = test::seeded_net<Mlp>();
    DistributedDataParallel ddp(net, low_options(group));
    const auto y = ddp(test::batch_of(rank, 0));
    y.register_hook([](const at::Tensor&) -> at::Tensor { TORCH_CHECK(false, "of the test"); });
    test::require_equal(error_of([&] { y.sum().backward(); }), "of the test");
    for (int step = 1; step < 3; ++step) ddp(test::batch_of(rank, step)).sum().backward();
    require_dtype(net->parameters(), at::kFloat);
  });
}

struct ManyInputsImpl : torch::nn::Module {
  ManyInputsImpl() { linear = register_module("linear", torch::nn::Linear(8, 4)); }
  at::Tensor forward(const std::vector<at::Tensor>& inputs, const std::optional<at::Tensor>& scale, at::Tensor places) {
    REQUIRE(inputs.front().scalar_type() == kLow && scale->scalar_type() == kLow && places.scalar_type() == at::kLong);
    return linear->forward(inputs.front() * *scale).index_select(0, places);
  }
  torch::nn::Linear linear{nullptr};
};
TORCH_MODULE(ManyInputs);

TEST(DdpPrecision, FloatingPointInputsBecomeLow) {
  run_rank_threads(1, [](int, const Group& group) {
    DistributedDataParallel ddp(ManyInputs(), low_options(group));
    const auto y = ddp(std::vector<at::Tensor>{torch::ones({3, 8})}, std::optional(torch::ones({1}, at::kDouble)),
                       torch::tensor({2, 0}));
    REQUIRE(y.scalar_type() == kLow);
  });
}

TEST(DdpPrecision, WhatIsIgnoredKeepsItsDtype) {
  run_rank_threads(1, [](int, const Group& group) {
    torch::nn::Sequential net(torch::nn::Linear(8, 4), torch::nn::BatchNorm1d(4), torch::nn::BatchNorm1d(4));
    auto options = low_options(group);
    options.mixed_precision->buffer_dtype = kLow;
    options.parameters_and_buffers_to_ignore = {"1.weight", "1.bias", "1.running_mean"};
    DistributedDataParallel ddp(net, options);
    auto buffers = net->named_buffers();
    REQUIRE(buffers["1.running_mean"].scalar_type() == at::kFloat);
    REQUIRE(buffers["1.running_var"].scalar_type() == kLow);
    REQUIRE(buffers["1.num_batches_tracked"].scalar_type() == at::kLong);
    REQUIRE(buffers["2.running_mean"].scalar_type() == kLow);
    ddp->eval();
    buffers["1.running_var"].set_data(buffers["1.running_var"].to(at::kFloat));  // as the mean beside it
    ddp(torch::ones({4, 8}));
    auto parameters = net->named_parameters();
    REQUIRE(parameters["1.weight"].scalar_type() == at::kFloat);
    REQUIRE(parameters["0.weight"].scalar_type() == kLow);
  });
}

TEST(DdpPrecision, FusedStepAndNormSeeFullGradients) {
  run_rank_threads(2, [](int rank, const Group& group) {
    const auto train = [&](bool is_fused) {
      auto net = test::seeded_net<Mlp>();
      DistributedDataParallel ddp(net, low_options(group));
      torch::optim::SGD optimizer(ddp->parameters(), 0.1);
      if (is_fused) ddp->fuse_step(optimizer);
      if (!is_fused) ddp->track_gradient_norm();
      for (int step = 0; step < 3; ++step) {
        ddp(test::batch_of(rank, step)).square().mean().backward();
        if (is_fused) continue;
        std::vector<at::Tensor> flat;
        for (const auto& gradient : gradients_of(net->parameters())) flat.push_back(gradient.reshape(-1));
        REQUIRE(at::allclose(ddp->gradient_norm(), at::cat(flat).norm(), 1e-4, 1e-5));
        optimizer.step();
        optimizer.zero_grad();
      }
      return net->parameters();
    };
    const auto fused = train(true), plain = train(false);
    for (size_t i = 0; i < fused.size(); ++i) REQUIRE(at::allclose(fused[i], plain[i], 1e-5, 1e-6));
  });
}

TEST(DdpPrecision, UnevenBatches) {
  run_rank_threads(2, [](int rank, const Group& group) {
    auto net = test::seeded_net<Mlp>();
    DistributedDataParallel ddp(net, low_options(group));
    torch::optim::SGD optimizer(ddp->parameters(), 0.1);
    const auto join = ddp->join();
    for (int step = 0; step < 2 + 2 * rank; ++step) {
      optimizer.zero_grad();
      ddp(test::batch_of(rank, step)).sum().backward();
      optimizer.step();
    }
    require_dtype(net->parameters(), at::kFloat);
  });
}

TEST(DdpPrecision, RefusalsMessage) {
  run_rank_threads(1, [](int, const Group& group) {
    auto options = low_options(group);
    DistributedDataParallel ddp(Mlp(), options);
    test::require_equal(error_of([&] { ddp->register_comm_hook(group, allreduce_hook); }),
                        "register_comm_hook or register_builtin_comm_hook can only be called once.");
    options.engine = Engine::kC10d;
    test::require_equal(error_of([&] { DistributedDataParallel wrong(Mlp(), options); }),
                        "[cohort] mixed_precision needs Engine::kCohort: until its buckets are rebuilt, LibTorch's "
                        "reducer averages memory that holds no gradients.");
    options.mixed_precision->reduce_dtype = at::kInt;
    test::require_equal(
        error_of([&] { DistributedDataParallel wrong(Mlp(), options); }),
        "[cohort] mixed_precision: reduce_dtype must be a floating-point dtype, such as torch::kBFloat16, got Int");
    options = low_options(group);
    Mlp delayed;
    options.delay_all_reduce_named_params = {{"third.weight", delayed->third->weight}};
    options.param_to_hook_all_reduce = delayed->first->weight;
    test::require_equal(
        error_of([&] { DistributedDataParallel wrong(delayed, options); }),
        "[cohort] mixed_precision and delay_all_reduce_named_params exclude each other: delayed parameters would "
        "keep their dtype, and inputs would not.");
    const auto complex = std::make_shared<torch::nn::LinearImpl>(2, 2);
    complex->weight.set_data(complex->weight.to(at::kComplexFloat));
    test::require_equal(error_of([&] { DistributedDataParallel wrong(complex, low_options(group)); }),
                        "[cohort] mixed_precision does not support complex parameters.");
    torch::nn::Embedding table(torch::nn::EmbeddingOptions(4, 2).sparse(true));
    test::require_equal(
        error_of([&] { DistributedDataParallel wrong(table, low_options(group)); }),
        "[cohort] mixed_precision does not support sparse gradients. Make the embedding with sparse=false.");
  });
}

}  // namespace
}  // namespace cohort::ddp
