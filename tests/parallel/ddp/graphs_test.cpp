// Graphs and uses of DDP that are out of the ordinary: backward within backward, gradients of gradients, empty batches, a module
// that is wrapped twice, parts in different groups, a failed pass followed by a good one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "cohort/parallel/ddp/distributed_data_parallel.h"
#include "tests/parallel/ddp/nets.h"
#include "tests/support/inline_engine.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"

namespace cohort::ddp {
namespace {

using test::error_of;
using test::Mlp;
using test::run_rank_threads;
using torch::autograd::AutogradContext;

// Runs layers again in backward, in a backward pass of their own, as activation checkpointing does.
struct Again : torch::autograd::Function<Again> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, test::MlpImpl* net) {
    context->save_for_backward({x});
    context->saved_data["net"] = reinterpret_cast<int64_t>(net);
    return run(*net, x);
  }
  static torch::autograd::variable_list backward(AutogradContext* context, torch::autograd::variable_list gradients) {
    auto x = context->get_saved_variables().front().detach().requires_grad_();
    const at::AutoGradMode with_gradients(true);
    const auto y = run(*reinterpret_cast<test::MlpImpl*>(context->saved_data["net"].toInt()), x);
    torch::autograd::backward({y}, {gradients.front()});
    return {x.grad(), at::Tensor()};
  }
  static at::Tensor run(test::MlpImpl& net, const at::Tensor& x) {
    return net.third->forward(torch::relu(net.second->forward(x)));
  }
};

// Its last layers, which come first in backward, are checkpointed.
struct CheckpointedImpl : torch::nn::Module {
  CheckpointedImpl() { inner = register_module("inner", Mlp()); }
  at::Tensor forward(const at::Tensor& x) {
    const auto hidden = torch::relu(inner->first->forward(x));
    return is_checkpointed ? Again::apply(hidden, inner.get()) : Again::run(*inner, hidden);
  }
  Mlp inner{nullptr};
  bool is_checkpointed = true;
};
TORCH_MODULE(Checkpointed);

std::vector<at::Tensor> train_checkpointed(int rank, const Options& options, bool is_checkpointed) {
  auto net = test::seeded_net<Checkpointed>();
  net->is_checkpointed = is_checkpointed;
  DistributedDataParallel ddp(net, options);
  torch::optim::SGD optimizer(ddp->parameters(), 0.1);
  for (int step = 0; step < 4; ++step) {
    optimizer.zero_grad();
    ddp(test::batch_of(rank, step)).square().sum().backward();
    optimizer.step();
  }
  return ddp->parameters();
}

class Graphs : public testing::TestWithParam<Engine> {};

TEST_P(Graphs, BackwardWithinBackward) {
  for (const auto& [is_static, is_low] : {std::pair(false, false), {true, false}, {false, true}, {true, true}}) {
    run_rank_threads(2, [&](int rank, const Group& group) {
      Options options;
      options.process_group = group;
      options.static_graph = is_static;
      if (is_low) options.mixed_precision = MixedPrecision{.param_dtype = at::kBFloat16};
      options.bucket_cap_mb = 0.0005;
      const auto expected = train_checkpointed(rank, options, false);
      options.engine = GetParam();
      const auto actual = train_checkpointed(rank, options, true);
      for (size_t i = 0; i < expected.size(); ++i) REQUIRE(at::allclose(actual[i], expected[i], 1e-5, 1e-6));
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Engines, Graphs, testing::Values(Engine::kCohort, kInline));

TEST(DdpGraphs, GradientsOfGradientsMessage) {
  testing::internal::CaptureStderr();
  run_rank_threads(2, [](int rank, const Group& group) {
    DistributedDataParallel ddp(Mlp(), {.process_group = group});
    for (int step = 0; step < 2; ++step) {
      const auto loss = ddp(torch::full({2, 8}, rank + 1.0)).square().sum();
      loss.backward({}, /*retain_graph=*/true, /*create_graph=*/true);
      for (const auto& parameter : ddp->parameters()) parameter.mutable_grad().reset();
    }
  });
  // LibTorch warns too, of cycles of references.
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(),
      testing::HasSubstr(
          "[cohort] warning: Using DistributedDataParallel with create_graph=True is not well-supported: gradients are "
          "averaged over the ranks, but gradients of these gradients are not averaged. Average them yourself, for "
          "example with all_reduce.\n"));
}

TEST(DdpGraphs, EmptyBatchesCountAsZero) {
  run_rank_threads(2, [](int rank, const Group& group) {
    Mlp net;
    DistributedDataParallel ddp(net, {.process_group = group});
    const auto x = torch::ones({3, 8});
    ddp(rank == 0 ? x : x.narrow(0, 0, 0)).sum().backward();
    const auto averaged = net->third->weight.grad().clone();
    const auto full = torch::autograd::grad({net->forward(x).sum()}, {net->third->weight}).front();
    REQUIRE(at::allclose(averaged, full / 2, 1e-4, 1e-5));
  });
}

TEST(DdpGraphs, ModuleThatIsWrappedTwiceMessage) {
  run_rank_threads(1, [](int, const Group& group) {
    Options options;
    options.process_group = group;
    DistributedDataParallel ddp(Mlp(), options);
    const std::string twice =
        "is wrapped already, so that gradients such as that of \"first.weight\" would be averaged twice. Wrap it once, "
        "or "
        "list its parameters in parameters_and_buffers_to_ignore.";
    test::require_equal(error_of([&] { DistributedDataParallel again(ddp.ptr(), options); }),
                        "[cohort] DistributedDataParallel: the module " + twice);
  });
}

// One part is averaged over all ranks, the other over each rank alone.
TEST(DdpGraphs, PartsInDifferentGroups) {
  run_rank_threads(2, [](int rank, const Group& group) {
    const auto own = test::split_rank_threads(group, {{0}, {1}});
    Mlp shared;
    torch::nn::Linear single(4, 2);
    {
      const at::NoGradGuard no_grad;
      single->weight.fill_(rank + 1);
    }
    DistributedDataParallel ddp(shared, {.process_group = group});
    DistributedDataParallel local(single, {.process_group = own});
    const auto x = torch::full({2, 8}, rank + 1.0);
    local(ddp(x)).sum().backward();
    const auto own_gradients =
        torch::autograd::grad({single->forward(shared->forward(x)).sum()}, {single->weight, shared->second->weight});
    REQUIRE(at::equal(single->weight.grad(), own_gradients[0]));
    auto sum = own_gradients[1].clone();
    all_reduce(sum, {.group = group});
    REQUIRE(at::allclose(shared->second->weight.grad(), sum / 2, 1e-4, 1e-5));
  });
}

// Those of the last layer; or all, when the gradient of something before the model is there.
TEST(DdpGraphs, DelayedGradientsAreAveragedAtOnce) {
  for (const bool are_all_delayed : {false, true}) {
    run_rank_threads(2, [&](int rank, const Group& group) {
      auto net = test::seeded_net<Mlp>();
      net->third->weight.detach().add_(rank);  // rank 0's come to all
      const auto scale = torch::ones({8}, at::requires_grad());
      Options options;
      options.process_group = group;
      options.param_to_hook_all_reduce = are_all_delayed ? scale : net->first->weight;
      for (const auto& entry : net->named_parameters()) {
        if (!are_all_delayed && !entry.key().starts_with("third")) continue;
        options.delay_all_reduce_named_params.emplace_back(entry.key(), entry.value());
      }
      DistributedDataParallel ddp(net, options);
      auto first_weight = net->third->weight.detach().clone();
      broadcast(first_weight, group_rank(0), {.group = group});
      REQUIRE(at::equal(first_weight, net->third->weight));
      for (int step = 0; step < 3; ++step) {
        const auto x = torch::full({2, 8}, rank + step + 1.0);
        net->zero_grad();
        ddp(x * scale).sum().backward();
        if (step == 1) {
          net->zero_grad(/*set_to_none=*/false);
          ddp(x * scale).sum().backward();
        }
        const std::vector<at::Tensor> weights{net->third->weight, net->second->weight};
        const auto own = torch::autograd::grad({net->forward(x).sum()}, weights);
        for (size_t i = 0; i < own.size(); ++i) {
          auto sum = own[i].clone();
          all_reduce(sum, {.group = group});
          REQUIRE(at::allclose(weights[i].grad(), sum / 2, 1e-4, 1e-5));
        }
      }
    });
  }
}

TEST(DdpGraphs, DelayedGradientsThatWereThereBefore) {
  run_rank_threads(2, [&](int rank, const Group& group) {
    auto net = test::seeded_net<Mlp>();
    Options options;
    options.process_group = group;
    options.param_to_hook_all_reduce = net->first->weight;
    options.delay_all_reduce_named_params = {{"third.weight", net->third->weight}};
    DistributedDataParallel ddp(net, options);
    const auto x = torch::full({2, 8}, rank + 1.0);
    const auto own = torch::autograd::grad({net->forward(x).sum()}, {net->third->weight}).front();
    net->third->weight.mutable_grad() = torch::full_like(own, rank + 1);
    ddp(x).sum().backward();
    auto sum = own + (rank + 1);
    all_reduce(sum, {.group = group});
    REQUIRE(at::allclose(net->third->weight.grad(), sum / 2, 1e-4, 1e-5));
    ddp->remove_autograd_hooks();
    net->zero_grad();
    ddp(x).sum().backward();
    REQUIRE(at::equal(net->third->weight.grad(), own));
  });
}

TEST(DdpGraphs, DelayNeedsBothOptionsMessage) {
  run_rank_threads(1, [](int, const Group& group) {
    Mlp net;
    const std::string both =
        "delay_all_reduce_named_params and param_to_hook_all_reduce need to be set at the same time.";
    Options options;
    options.process_group = group;
    options.param_to_hook_all_reduce = net->first->weight;
    test::require_equal(error_of([&] { DistributedDataParallel(net, options); }), both);
    options.param_to_hook_all_reduce = at::Tensor();
    options.delay_all_reduce_named_params = {{"third.weight", net->third->weight}};
    test::require_equal(error_of([&] { DistributedDataParallel(net, options); }), both);
  });
}

class OtherGroups : public testing::TestWithParam<Engine> {};

// Three ranks go on as two, after a step that the third left unfinished.
TEST_P(OtherGroups, GoOnWithFewerRanks) {
  run_rank_threads(3, [](int rank, const Group& group) {
    const auto fewer = test::split_rank_threads(group, {{0, 1}, {2}});
    Mlp net;
    Options options;
    options.process_group = group;
    options.bucket_cap_mb = 0.0005;
    options.engine = GetParam();
    DistributedDataParallel ddp(net, options);
    const auto x = torch::full({2, 8}, rank + 1.0);
    for (int step = 0; step < 3; ++step) ddp(x).sum().backward();
    (void)ddp(x);  // forward without backward
    ddp->update_process_group(fewer);
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      ddp(x).sum().backward();
      REQUIRE(GetParam() == kInline || ddp->reducer().has_rebuilt_buckets() == (step > 0));
      const auto averaged = net->second->weight.grad().clone();
      net->zero_grad();
      {
        const auto local = ddp->no_sync();
        ddp(x).sum().backward();
      }
      auto sum = net->second->weight.grad().clone();
      all_reduce(sum, {.group = fewer});
      REQUIRE(at::allclose(averaged, sum / fewer->getSize(), 1e-4, 1e-5));
    }
    ddp->remove_autograd_hooks();
    net->zero_grad();
    const auto loss = net->forward(x).sum();
    loss.backward();
    const auto alone = net->second->weight.grad().clone();
    net->zero_grad();
    ddp(x).sum().backward();
    REQUIRE(at::equal(net->second->weight.grad(), alone));
  });
}

INSTANTIATE_TEST_SUITE_P(Engines, OtherGroups, testing::Values(Engine::kCohort, Engine::kC10d, kInline));

// A static graph is learned again, by whoever is left; and a pass without backward does not count as the first.
TEST_P(OtherGroups, LearnAStaticGraphAgain) {
  run_rank_threads(3, [](int rank, const Group& group) {
    const auto fewer = test::split_rank_threads(group, {{0, 1}, {2}});
    auto net = test::seeded_net<test::Branches>();
    Options options;
    options.process_group = group;
    options.bucket_cap_mb = 0.0001;
    options.static_graph = true;
    options.engine = GetParam();
    DistributedDataParallel ddp(net, options);
    const auto x = torch::full({2, 8}, rank + 1.0);
    (void)ddp(x, true, false);
    for (int step = 0; step < 3; ++step) ddp(x, true, false).sum().backward();
    ddp->update_process_group(fewer);
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      ddp(x, true, false).sum().backward();
      REQUIRE(!net->right->weight.grad().defined());
      const auto averaged = net->left->weight.grad().clone();
      net->zero_grad();
      net->forward(x, true, false).sum().backward();
      auto sum = net->left->weight.grad().clone();
      all_reduce(sum, {.group = fewer});
      REQUIRE(at::allclose(averaged, sum / fewer->getSize(), 1e-4, 1e-5));
    }
  });
}

// What fails before DDP is reached, on every rank, does not touch the next step.
TEST(DdpGraphs, StepsAfterAPassThatFailed) {
  run_rank_threads(2, [](int rank, const Group& group) {
    Mlp net;
    DistributedDataParallel ddp(net, {.process_group = group});
    const auto x = torch::full({2, 8}, rank + 1.0);
    const auto step = [&] {
      net->zero_grad();
      ddp(x).sum().backward();
      return net->second->weight.grad().clone();
    };
    const auto expected = step();
    {
      const at::NoGradGuard no_grad;
      const auto without_gradients = ddp(x).sum();
      REQUIRE(error_of([&] { without_gradients.backward(); }) != "(no error)");
    }
    REQUIRE(at::equal(step(), expected));
    REQUIRE(error_of([&] { (void)ddp(torch::ones({2, 9})); }) != "(no error)");
    REQUIRE(at::equal(step(), expected));
    const auto loss = ddp(x).sum();
    loss.backward();
    REQUIRE(error_of([&] { loss.backward(); }) != "(no error)");
    REQUIRE(at::equal(step(), expected));
  });
}

}  // namespace
}  // namespace cohort::ddp
