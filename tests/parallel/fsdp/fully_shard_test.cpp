// fully_shard against one process that has all ranks' batches, on ranks that are threads.
#include "cohort/parallel/fsdp/fully_shard.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/init.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <chrono>
#include <optional>
#include <thread>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/shm/make_shm_backend.h"
#include "cohort/parallel/optim/clip_grad.h"
#include "cohort/parallel/optim/fused_optimizers.h"
#include "tests/parallel/ddp/nets.h"
#include "tests/support/rank_threads.h"
#include "tests/support/rounding.h"

namespace cohort::fsdp {
namespace {

using test::are_rounded_alike;
using test::batch_of;
using test::largest_of;
using test::Mlp;
using test::seeded_net;
using Tensors = std::vector<at::Tensor>;

void run_shm(int world_size, const std::function<void(int, const Group&)>& fn) {
  test::run_rank_threads(world_size, fn, {.make_backend = comm::make_shm_backend});
}

Tensors cloned(const Tensors& tensors) {
  Tensors result;
  for (const auto& tensor : tensors) result.push_back(tensor.detach().clone());
  return result;
}

// Parameters, of which none is larger than 1.
void expect_alike_after(int64_t steps, const Tensors& actual, const Tensors& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_TRUE(are_rounded_alike(actual[i], expected[i], steps * test::kMlpSums, /*magnitude=*/1.0)) << i;
  }
}

// One of two ranks' of a gradient of Mlp's, summed over both.
bool is_part_of(const at::Tensor& part, const at::Tensor& whole, int rank) {
  return are_rounded_alike(part, whole.chunk(2)[rank], test::kMlpSums + 2, largest_of(whole));
}

at::Tensor loss_of(const at::Tensor& output, int rank, int64_t step) {
  return (output - batch_of(rank, 500 + step, output.size(1))).square().mean();
}

enum class With { kNothing, kClipping, kAccumulation, kNoSync, kFrozen, kFusedOptimizer };

// Ten steps of AdamW; `batch_ranks` are those whose batches this net sees, `micro` how many it adds up.
template <class Net, class Forward, class Optimizer>
void train(Net& net, Forward forward, Optimizer& optimizer, const std::vector<int>& batch_ranks, With with) {
  const int num_micro = with == With::kAccumulation || with == With::kNoSync ? 3 : 1;
  for (int step = 0; step < 10; ++step) {
    for (int micro = 0; micro < num_micro; ++micro) {
      if constexpr (requires { net->set_requires_gradient_sync(true); }) {
        if (with == With::kNoSync) net->set_requires_gradient_sync(micro == num_micro - 1);
      }
      std::vector<at::Tensor> losses;
      for (const int rank : batch_ranks) {
        losses.push_back(loss_of(forward(batch_of(rank, 10 * step + micro)), rank, 10 * step + micro));
      }
      (at::stack(losses).mean() / num_micro).backward();
    }
    if (with == With::kClipping) cohort::nn::utils::clip_grad_norm_(net->parameters(), 0.05);
    optimizer.step();
    net->zero_grad();
  }
}

template <class Net>
void freeze(Net& net) {
  net->first->weight.set_requires_grad(false);
}

std::vector<int> all_ranks(int world_size) {
  std::vector<int> ranks(world_size);
  for (int i = 0; i < world_size; ++i) ranks[i] = i;
  return ranks;
}

class FullyShardTraining : public testing::TestWithParam<std::tuple<int, With>> {};

TEST_P(FullyShardTraining, EqualsOneProcess) {
  const auto [world_size, with] = GetParam();
  auto reference = seeded_net<Mlp>();
  if (with == With::kFrozen) freeze(reference);
  torch::optim::AdamW optimizer(reference->parameters(), torch::optim::AdamWOptions(0.01));
  train(
      reference, [&](const at::Tensor& x) { return reference->forward(x); }, optimizer, all_ranks(world_size), with);
  const auto expected = reference->parameters();
  run_shm(world_size, [&, with = with](int rank, const Group& group) {
    auto net = seeded_net<Mlp>();
    if (with == With::kFrozen) freeze(net);
    auto model = fully_shard(net, {.process_group = group});
    const auto forward = [&](const at::Tensor& x) { return model(x); };
    const torch::optim::AdamWOptions options(0.01);
    if (with == With::kFusedOptimizer) {
      optim::AdamW sharded(model->parameters(), options);
      train(model, forward, sharded, {rank}, with);
    } else {
      torch::optim::AdamW sharded(model->parameters(), options);
      train(model, forward, sharded, {rank}, with);
    }
    barrier({.group = group});
    expect_alike_after(10, net->parameters(), expected);
    barrier({.group = group});
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, FullyShardTraining,
                         testing::Combine(testing::Values(1, 2, 3, 4),
                                          testing::Values(With::kNothing, With::kClipping, With::kAccumulation,
                                                          With::kNoSync, With::kFrozen, With::kFusedOptimizer)));

TEST(FullyShard, ShardsAreThisRanksRows) {
  run_shm(3, [](int rank, const Group& group) {
    auto net = seeded_net<Mlp>();
    const auto before = cloned(net->parameters());
    auto model = fully_shard(net, {.process_group = group});
    const auto named = model->named_parameters();
    EXPECT_EQ(named.keys(), net->named_parameters().keys());
    const auto shards = model->parameters();
    for (size_t i = 0; i < shards.size(); ++i) {
      const auto chunks = before[i].chunk(3);
      const auto expected = static_cast<size_t>(rank) < chunks.size() ? chunks[rank] : before[i].narrow(0, 0, 0);
      EXPECT_TRUE(at::equal(shards[i], expected)) << named.keys()[i];
      EXPECT_TRUE(shards[i].is_leaf() && shards[i].requires_grad());
      EXPECT_TRUE(at::equal(net->parameters()[i], before[i]));
    }
  });
}

// As in PyTorch, nobody's values are broadcast.
TEST(FullyShard, EachRankGivesItsOwnRows) {
  run_shm(2, [](int rank, const Group& group) {
    torch::nn::Linear net(3, 4);
    torch::nn::init::constant_(net->weight, rank + 1);
    auto model = fully_shard(net, {.process_group = group});
    const auto expected = at::tensor({1.0f, 1.0f, 2.0f, 2.0f}).view({4, 1}).expand({4, 3});
    EXPECT_TRUE(at::equal(net->weight, expected));
  });
}

// The module's own tensors, not copies, so that members of user-written modules see what the optimizers do.
TEST(FullyShard, ParametersKeepTheirIdentity) {
  run_shm(2, [](int, const Group& group) {
    auto net = seeded_net<Mlp>();
    const auto weight = net->first->weight;
    auto model = fully_shard(net, {.process_group = group});
    EXPECT_TRUE(weight.is_same(net->first->weight));
    EXPECT_TRUE(weight.is_same(net->parameters()[0]));
    barrier({.group = group});
    const at::NoGradGuard no_grad;
    model->parameters()[0].fill_(7);
    barrier({.group = group});
    EXPECT_TRUE(at::equal(weight, at::full_like(weight, 7)));
  });
}

TEST(FullyShard, WriteIsForEveryone) {
  run_shm(3, [](int rank, const Group& group) {
    auto net = seeded_net<Mlp>();
    auto model = fully_shard(net, {.process_group = group});
    int num_calls = 0;
    model->write([&](const std::string& name, const at::Tensor& full) {
      ++num_calls;
      full.fill_(name == "second.bias" ? 2 : 1);
    });
    EXPECT_EQ(num_calls, rank == 0 ? 6 : 0);
    EXPECT_TRUE(at::equal(net->second->bias, at::full_like(net->second->bias, 2)));
    EXPECT_TRUE(at::equal(net->second->weight, at::ones_like(net->second->weight)));
    barrier({.group = group});
  });
}

TEST(FullyShard, MetaModulesAreWrittenAfterwards) {
  run_shm(2, [](int, const Group& group) {
    struct OnMeta : torch::nn::Module {
      OnMeta() { weight = register_parameter("weight", at::empty({5, 3}, at::kMeta)); }
      at::Tensor forward(at::Tensor x) { return x.matmul(weight.t()); }
      at::Tensor weight;
    };
    auto net = std::make_shared<OnMeta>();
    auto model = fully_shard(net, {.process_group = group});
    model->write(
        [&](const std::string&, const at::Tensor& full) { full.copy_(at::arange(full.numel()).view_as(full)); });
    EXPECT_TRUE(net->weight.is_cpu());
    EXPECT_TRUE(at::equal(net->weight, at::arange(15, at::kFloat).view({5, 3})));
    model(at::ones({2, 3})).sum().backward();
    EXPECT_TRUE(at::equal(model->parameters()[0].grad(), at::full_like(model->parameters()[0], 2)));
    barrier({.group = group});
  });
}

TEST(FullyShard, BackwardAfterAStepIsNoticed) {
  run_shm(1, [](int, const Group& group) {
    auto net = seeded_net<Mlp>();
    auto model = fully_shard(net, {.process_group = group});
    torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(0.1));  // SGD hides its writes
    const auto loss = model(batch_of(0, 0)).sum();
    loss.backward({}, /*retain_graph=*/true);
    optimizer.step();
    EXPECT_THROW(loss.backward(), c10::Error);
  });
}

// Gradients of ranks that have not used a parameter count as zero; one that nobody has used has none.
TEST(FullyShard, UnusedParameters) {
  run_shm(2, [](int rank, const Group& group) {
    auto net = seeded_net<test::Branches>();
    auto model = fully_shard(net, {.process_group = group});
    model(batch_of(rank, 0), rank == 0, false).sum().backward();
    const auto grads = model->named_parameters();
    EXPECT_TRUE(grads["left.weight"].grad().defined());
    EXPECT_FALSE(grads["right.weight"].grad().defined());
    auto reference = seeded_net<test::Branches>();
    reference(batch_of(0, 0), true, false).sum().backward();
    const auto expected = reference->left->weight.grad() / 2;
    EXPECT_TRUE(
        are_rounded_alike(grads["left.weight"].grad(), expected.chunk(2)[rank], 8 + 4 + 4 + 2, largest_of(expected)));
    barrier({.group = group});
  });
}

struct TwoPathsImpl : torch::nn::Module {
  TwoPathsImpl() {
    wide = register_module("wide", torch::nn::Linear(8, 6));
    narrow = register_module("narrow", torch::nn::Linear(8, 2));
  }
  at::Tensor forward(const at::Tensor& x, bool wide_first) {
    if (wide_first) {
      const auto first = wide(x).square().sum();
      return first + narrow(x).square().sum();
    }
    const auto first = narrow(x).square().sum();
    return first + wide(x).square().sum();
  }
  torch::nn::Linear wide{nullptr}, narrow{nullptr};
};
TORCH_MODULE(TwoPaths);

// Each rank's autograd puts the gradients elsewhere.
TEST(FullyShard, GradientsComeInAnotherOrderOnEachRank) {
  run_shm(2, [](int rank, const Group& group) {
    auto model = fully_shard(seeded_net<TwoPaths>(), {.process_group = group});
    auto reference = seeded_net<TwoPaths>();
    ((reference(batch_of(0, 0), true) + reference(batch_of(1, 0), true)) / 2).backward();
    model(batch_of(rank, 0), rank == 0).backward();
    const auto shards = model->named_parameters();
    for (const auto& entry : reference->named_parameters()) {
      const auto expected = entry.value().grad();
      EXPECT_TRUE(
          are_rounded_alike(shards[entry.key()].grad(), expected.chunk(2)[rank], 8 + 6 + 4 + 2, largest_of(expected)))
          << entry.key();
    }
    barrier({.group = group});
  });
}

TEST(FullyShard, IgnoredParametersStayWhole) {
  run_shm(2, [](int rank, const Group& group) {
    auto net = seeded_net<Mlp>();
    auto model = fully_shard(net, {.process_group = group, .ignored_params = {net->first->weight}});
    EXPECT_EQ(model->parameters().size(), 6u);
    EXPECT_TRUE(model->parameters()[0].is_same(net->first->weight));
    model(batch_of(rank, 0)).sum().backward();
    EXPECT_EQ(net->first->weight.grad().sizes(), net->first->weight.sizes());
    barrier({.group = group});
  });
}

TEST(FullyShard, TheDivideFactorIsTheNumberOfRanksUnlessSet) {
  run_shm(2, [](int rank, const Group& group) {
    torch::nn::Linear net(1, 2);
    auto model = fully_shard(net, {.process_group = group});
    const auto grad = [&] {
      model->zero_grad();
      model(at::full({1, 1}, rank + 1.0f)).sum().backward();
      return model->parameters()[0].grad().item<float>();
    };
    EXPECT_EQ(grad(), 1.5f);
    model->set_gradient_divide_factor(1);
    EXPECT_EQ(grad(), 3.0f);
    EXPECT_THROW(model->set_gradient_divide_factor(0), c10::ValueError);
  });
}

// After an exception in the middle of backward, on all ranks, the next pass is as good as any.
TEST(FullyShard, GoesOnAfterAnException) {
  run_shm(2, [](int rank, const Group& group) {
    auto net = seeded_net<Mlp>();
    auto model = fully_shard(net, {.process_group = group});
    EXPECT_THROW((void)model(at::ones({4, 9})), c10::Error);
    auto output = model(batch_of(rank, 0));
    const auto hook = net->first->bias.register_hook([](const at::Tensor&) { throw std::runtime_error("bad data"); });
    EXPECT_ANY_THROW(output.sum().backward());
    net->first->bias.remove_hook(hook);
    barrier({.group = group});
    model->zero_grad();
    loss_of(model(batch_of(rank, 1)), rank, 1).backward();
    auto reference = seeded_net<Mlp>();
    ((loss_of(reference(batch_of(0, 1)), 0, 1) + loss_of(reference(batch_of(1, 1)), 1, 1)) / 2).backward();
    for (size_t i = 0; i < 6; ++i) {
      const auto expected = reference->parameters()[i].grad();
      EXPECT_TRUE(is_part_of(model->parameters()[i].grad(), expected, rank)) << i;
    }
    barrier({.group = group});
  });
}

// A rank that has caught an exception is no step ahead of the others afterwards, and has lost nothing that it had added up.
TEST(FullyShard, AnExceptionOfOneRankAlone) {
  run_shm(2, [](int rank, const Group& group) {
    auto net = seeded_net<Mlp>();
    auto model = fully_shard(net, {.process_group = group});
    auto reference = seeded_net<Mlp>();
    for (int step = 0; step < 4; ++step) {
      model->zero_grad();
      reference->zero_grad();
      {
        const auto local = model->no_sync();
        loss_of(model(batch_of(rank, 10 + step)), rank, step).backward();
      }
      if (rank == 0) {
        EXPECT_THROW((void)model(at::ones({4, 9})), c10::Error);
      }
      auto output = model(batch_of(rank, step));
      if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      loss_of(output, rank, step).backward();
      const auto loss = [&](int of) {
        return loss_of(reference(batch_of(of, step)), of, step) + loss_of(reference(batch_of(of, 10 + step)), of, step);
      };
      ((loss(0) + loss(1)) / 2).backward();
      for (size_t i = 0; i < 6; ++i) {
        const auto expected = reference->parameters()[i].grad();
        EXPECT_TRUE(is_part_of(model->parameters()[i].grad(), expected, rank)) << step << " " << i;
      }
    }
    barrier({.group = group});
  });
}

TEST(FullyShard, UnfreezingBetweenSteps) {
  run_shm(2, [](int rank, const Group& group) {
    auto net = seeded_net<Mlp>();
    net->first->weight.set_requires_grad(false);
    auto model = fully_shard(net, {.process_group = group});
    loss_of(model(batch_of(rank, 0)), rank, 0).backward();
    EXPECT_FALSE(model->parameters()[0].grad().defined());
    net->first->weight.set_requires_grad(true);
    loss_of(model(batch_of(rank, 1)), rank, 1).backward();
    auto reference = seeded_net<Mlp>();
    ((loss_of(reference(batch_of(0, 1)), 0, 1) + loss_of(reference(batch_of(1, 1)), 1, 1)) / 2).backward();
    EXPECT_TRUE(is_part_of(model->parameters()[0].grad(), reference->first->weight.grad(), rank));
    barrier({.group = group});
  });
}

TEST(FullyShard, NoSyncLeavesAllAsItWas) {
  run_shm(1, [](int, const Group& group) {
    auto model = fully_shard(seeded_net<Mlp>(), {.process_group = group});
    model->set_requires_all_reduce(false);
    {
      const auto outer = model->no_sync();
      { const auto inner = model->no_sync(); }
      EXPECT_FALSE(model->sharding().settings().requires_gradient_sync);
    }
    EXPECT_TRUE(model->sharding().settings().requires_gradient_sync);
    EXPECT_FALSE(model->sharding().settings().requires_all_reduce);
  });
}

// Blocks first, then the root, as in PyTorch.
TEST(FullyShard, NestedCallsTrainAlike) {
  for (const bool is_nested : {false, true}) {
    run_shm(2, [&](int rank, const Group& group) {
      auto inner = seeded_net<Mlp>();
      auto outer = seeded_net<torch::nn::Linear>(4, 4);
      const at::NoGradGuard no_grad;
      outer->weight.fill_(0.25);
      outer->bias.fill_(0.5);
      at::AutoGradMode grad(true);
      torch::nn::Sequential net;
      if (is_nested) {
        net->push_back(fully_shard(inner, {.process_group = group}));
      } else {
        net->push_back(inner);
      }
      net->push_back(outer);
      auto model = fully_shard(net, {.process_group = group});
      EXPECT_EQ(model->parameters().size(), 8u);
      EXPECT_EQ(model->sharding().parameters().size(), is_nested ? 2u : 8u);
      torch::optim::SGD optimizer(model->parameters(), 0.1);
      for (int step = 0; step < 3; ++step) {
        loss_of(model(batch_of(rank, step)), rank, step).backward();
        optimizer.step();
        optimizer.zero_grad();
      }
      barrier({.group = group});
      // One process on both batches.
      auto reference = seeded_net<Mlp>();
      auto head = seeded_net<torch::nn::Linear>(4, 4);
      {
        const at::NoGradGuard off;
        head->weight.fill_(0.25);
        head->bias.fill_(0.5);
      }
      auto all = reference->parameters();
      for (const auto& parameter : head->parameters()) all.push_back(parameter);
      torch::optim::SGD plain(all, 0.1);
      for (int step = 0; step < 3; ++step) {
        plain.zero_grad();
        const auto loss = [&](int of) { return loss_of(head(reference->forward(batch_of(of, step))), of, step); };
        ((loss(0) + loss(1)) / 2).backward();
        plain.step();
      }
      expect_alike_after(3, net->parameters(), all);
      barrier({.group = group});
    });
  }
}

}  // namespace
}  // namespace cohort::fsdp
