#include "cohort/parallel/activation/activation_checkpoint.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/any_value.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/serialize.h>
#include <torch/types.h>

#include <sstream>
#include <vector>

#include "cohort/parallel/ddp/distributed_data_parallel.h"
#include "tests/parallel/ddp/nets.h"
#include "tests/support/inline_engine.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"

namespace cohort {
namespace {

using test::Mlp;
using test::run_rank_threads;

// A layer that counts its runs.
struct CountedLayerImpl : torch::nn::Module {
  CountedLayerImpl() : linear(register_module("linear", torch::nn::Linear(8, 8))) {}
  at::Tensor forward(const at::Tensor& x, double scale = 2) {
    ++num_runs;
    return torch::tanh(linear(x) * scale);
  }
  torch::nn::Linear linear;
  int num_runs = 0;

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(2.0)})
};
TORCH_MODULE(CountedLayer);

TEST(ActivationCheckpoint, StandsWhereTheModuleStoodUnderItsNames) {
  CountedLayer plain;
  CountedLayer layer;
  ActivationCheckpoint wrapped(layer);
  torch::nn::Sequential before(plain, torch::nn::Linear(8, 2));
  torch::nn::Sequential after(wrapped, torch::nn::Linear(8, 2));
  EXPECT_EQ(after->named_parameters().keys(), before->named_parameters().keys());
  std::stringstream file;
  torch::save(before, file);
  torch::load(after, file);
  const auto x = torch::rand({3, 8});
  EXPECT_TRUE(at::equal(after->forward(x), before->forward(x)));
  after->forward(x).sum().backward();
  before->forward(x).sum().backward();
  for (size_t i = 0; i < before->parameters().size(); ++i) {
    EXPECT_TRUE(at::equal(after->parameters()[i].grad(), before->parameters()[i].grad()));
  }
  EXPECT_EQ(layer->num_runs, plain->num_runs + 1);
  EXPECT_TRUE(at::equal(wrapped(x, 3.0), plain(x, 3.0)));
  wrapped->eval();
  EXPECT_FALSE(layer->is_training());
}

TEST(ActivationCheckpoint, OptionsReachTheCheckpoint) {
  CountedLayer layer;
  ActivationCheckpoint wrapped(layer, {.use_reentrant = true});
  const auto y = wrapped(torch::rand({3, 8}, at::requires_grad())).sum();
  const std::vector<at::Tensor> inputs{layer->linear->weight};
  EXPECT_THROW(torch::autograd::grad({y}, inputs), c10::Error);
}

TEST(OffloadWrapper, KeepsWhatForwardSavesOnTheCpu) {
  CountedLayer layer;
  OffloadWrapper wrapped(layer);
  const auto x = torch::rand({3, 8});
  int num_seen = 0;
  at::Tensor y;
  {
    const SavedTensorHooks outer([&](const at::Tensor& saved) -> UnpackHook {
      ++num_seen;
      return [kept = saved.detach()] { return kept; };
    });
    y = wrapped(x);
  }
  EXPECT_EQ(num_seen, 0);
  y.sum().backward();
  const auto gradient = layer->linear->weight.grad().clone();
  layer->zero_grad();
  layer(x).sum().backward();
  EXPECT_TRUE(at::equal(layer->linear->weight.grad(), gradient));
}

TEST(ApplyActivationCheckpointing, WrapsTheChildrenThatAPredicateChooses) {
  torch::nn::ModuleList list;
  std::vector<CountedLayer> layers(4);
  for (const auto& layer : layers) list->push_back(layer);
  list->push_back(torch::nn::Linear(8, 2));
  const auto names = list->named_parameters().keys();
  EXPECT_EQ(apply_activation_checkpointing<CountedLayerImpl>(*list, [](size_t i) { return i % 2 == 1; }), 2U);
  EXPECT_EQ(list->named_parameters().keys(), names);
  EXPECT_TRUE(list->ptr(0)->as<CountedLayerImpl>());
  EXPECT_FALSE(list->ptr(1)->as<CountedLayerImpl>());
  EXPECT_EQ(list->ptr(1), list->children()[1]);
  EXPECT_EQ(apply_activation_checkpointing<CountedLayerImpl>(*list), 2U);  // the others
}

TEST(ApplyActivationCheckpointing, InASequentialWithNames) {
  CountedLayer first;
  CountedLayer second;
  torch::nn::Sequential net({{"first", torch::nn::AnyModule(first)}, {"second", torch::nn::AnyModule(second)}});
  const auto names = net->named_parameters().keys();
  EXPECT_EQ(apply_activation_checkpointing<CountedLayerImpl>(*net, [](size_t i) { return i == 1; }), 1U);
  EXPECT_EQ(net->named_parameters().keys(), names);
  net->forward(torch::rand({2, 8})).sum().backward();
  EXPECT_EQ(first->num_runs, 1);
  EXPECT_EQ(second->num_runs, 2);
}

// Every layer checkpointed, the second used twice, the last one by even steps only.
struct DeepImpl : torch::nn::Module {
  explicit DeepImpl(bool is_checkpointed) : is_checkpointed(is_checkpointed) {
    net = register_module("net", Mlp());
    spare = register_module("spare", torch::nn::Linear(4, 4));
  }
  at::Tensor forward(const at::Tensor& input, bool uses_spare) {
    auto x = run(net->first, input);
    x = run(net->second, run(net->second, x));
    x = run(net->third, x);
    return uses_spare ? run(spare, x) : x;
  }
  at::Tensor run(torch::nn::Linear& layer, const at::Tensor& x) const {
    auto forward = [layer](const at::Tensor& value) mutable { return torch::relu(layer(value)).square(); };
    return is_checkpointed ? activation::checkpoint(forward, x) : forward(x);
  }
  Mlp net{nullptr};
  torch::nn::Linear spare{nullptr};
  bool is_checkpointed;
};
TORCH_MODULE(Deep);

class DdpCheckpoint : public testing::TestWithParam<ddp::Engine> {};

TEST_P(DdpCheckpoint, GradientsAreThoseWithoutItInEveryMode) {
  struct Mode {
    bool finds_unused, is_static, is_view;
  };
  for (const Mode mode : {Mode{false, false, false}, {true, false, false}, {false, true, false}, {true, false, true}}) {
    run_rank_threads(2, [&](int rank, const Group& group) {
      std::vector<at::Tensor> gradients[2];
      for (const bool is_checkpointed : {false, true}) {
        auto net = test::seeded_net<Deep>(is_checkpointed);
        DistributedDataParallel model(net, {.process_group = group,
                                            .bucket_cap_mb = 0.0005,
                                            .find_unused_parameters = mode.finds_unused,
                                            .static_graph = mode.is_static,
                                            .gradient_as_bucket_view = mode.is_view,
                                            .engine = GetParam()});
        for (int step = 0; step < 3; ++step) {
          net->zero_grad();
          const bool uses_spare = !mode.finds_unused || step % 2 == 0;
          model(test::batch_of(rank, step), uses_spare).sum().backward();
          for (const auto& parameter : net->parameters()) {
            if (parameter.grad().defined()) gradients[is_checkpointed].push_back(parameter.grad().clone());
          }
        }
      }
      REQUIRE(gradients[0].size() == gradients[1].size() && gradients[0].size() >= 16);
      for (size_t i = 0; i < gradients[0].size(); ++i) REQUIRE(at::equal(gradients[1][i], gradients[0][i]));
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Engines, DdpCheckpoint, testing::Values(ddp::Engine::kCohort, ddp::kInline));

}  // namespace
}  // namespace cohort
