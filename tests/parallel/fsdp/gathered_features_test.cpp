// What a program sees of parameters that are gathered and let go: their memory, the order of collectives, switches.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <string>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/shm/make_shm_backend.h"
#include "cohort/parallel/activation/checkpoint.h"
#include "cohort/parallel/module/gradient_hooks.h"
#include "tests/parallel/ddp/nets.h"
#include "tests/parallel/fsdp/gathered_blocks.h"
#include "tests/support/rank_threads.h"
#include "tests/support/rounding.h"

namespace cohort::fsdp {
namespace {

using cohort::test::are_rounded_alike;
using cohort::test::batch_of;
using cohort::test::largest_of;
using cohort::test::run_rank_threads;
using test::batch;
using test::block_loss;
using test::blocks_in;
using test::bytes_there;
using test::expect_shards_of;
using test::in_group;
using test::NamedGather;
using test::NamedReduce;
using test::plain_gradients;
using testing::ElementsAre;

TEST(GatheredFeatures, FullParametersAreThereWhileTheyAreNeeded) {
  run_rank_threads(2, [](int rank, const Group& group) {
    auto model = blocks_in(group);
    auto& net = model->module();
    EXPECT_EQ(bytes_there(net), 0u);
    auto output = model(batch(rank, 0));
    const size_t of_root = (4 * 6 + 6 + 6 * 3 + 3) * sizeof(float);  // kept: backward needs it first
    EXPECT_EQ(bytes_there(net), of_root);
    size_t of_last_block = 1;
    net.blocks[0]->module().up->weight.register_hook(
        [&](const at::Tensor&) { of_last_block = bytes_there(net.blocks[2]->module()); });
    block_loss(output, rank, 0).backward();
    EXPECT_EQ(of_last_block, 0u) << "while backward is in the first one";
    EXPECT_EQ(bytes_there(net), 0u);
    for (auto& block : net.blocks) block->set_reshard_after_forward(false);
    output = model(batch(rank, 0));
    EXPECT_EQ(bytes_there(net), of_root + 3 * (6 * 10 + 10 + 10 * 6) * sizeof(float));
    block_loss(output, rank, 0).backward();
    EXPECT_EQ(bytes_there(net), 0u);
    model->set_reshard_after_backward(false);
    block_loss(model(batch(rank, 0)), rank, 0).backward();
    EXPECT_EQ(bytes_there(net), of_root + 3 * (6 * 10 + 10 + 10 * 6) * sizeof(float));
  });
}

TEST(GatheredFeatures, CollectivesComeInPyTorchsOrder) {
  run_rank_threads(2, [](int rank, const Group& group) {
    std::vector<std::string> log;
    auto model = blocks_in(group);
    auto& blocks = model->module().blocks;
    const auto watch = [&](ShardedModule& module, const std::string& name) {
      module.set_custom_all_gather(std::make_shared<NamedGather>(name, &log));
      module.set_custom_reduce_scatter(std::make_shared<NamedReduce>(name, &log));
    };
    watch(*model, "root");
    for (size_t i = 0; i < blocks.size(); ++i) watch(*blocks[i], std::to_string(i));
    auto output = model(batch(rank, 0));
    EXPECT_THAT(log, ElementsAre("gather root", "gather 0", "gather 1", "gather 2"));
    log.clear();
    block_loss(output, rank, 0).backward();
    // The root is still there, and what comes next is fetched while a block computes.
    EXPECT_THAT(log,
                ElementsAre("gather 2", "gather 1", "reduce 2", "gather 0", "reduce 1", "reduce 0", "reduce root"));
    log.clear();
    model->set_modules_to_forward_prefetch({blocks[0].get(), blocks[1].get()});
    blocks[2]->set_modules_to_backward_prefetch({blocks[1].get(), blocks[0].get()});
    output = model(batch(rank, 1));
    EXPECT_THAT(log, ElementsAre("gather root", "gather 0", "gather 1", "gather 2"));
    log.clear();
    block_loss(output, rank, 0).backward();
    EXPECT_THAT(log,
                ElementsAre("gather 2", "gather 0", "gather 1", "reduce 2", "reduce 1", "reduce 0", "reduce root"));
  });
}

TEST(GatheredFeatures, PassesThatAreAddedUpAreReducedOnce) {
  run_rank_threads(2, [](int rank, const Group& group) {
    std::vector<std::string> log;
    auto model = blocks_in(group);
    auto& blocks = model->module().blocks;
    for (size_t i = 0; i < blocks.size(); ++i) {
      blocks[i]->set_custom_reduce_scatter(std::make_shared<NamedReduce>(std::to_string(i), &log));
    }
    const auto first = block_loss(model(batch(rank, 0)), rank, 0);
    (first + block_loss(model(batch(rank, 1)), rank, 1)).backward();
    EXPECT_THAT(log, ElementsAre("reduce 2", "reduce 1", "reduce 0"));
  });
}

TEST(GatheredFeatures, ForwardPrefetchBeginsInTheBlockBefore) {
  run_rank_threads(2, [](int rank, const Group& group) {
    std::vector<std::string> log;
    auto model = blocks_in(group);
    auto& blocks = model->module().blocks;
    for (size_t i = 0; i < blocks.size(); ++i) {
      blocks[i]->set_custom_all_gather(std::make_shared<NamedGather>(std::to_string(i), &log));
    }
    model->set_modules_to_forward_prefetch({blocks[2].get()});
    const at::NoGradGuard no_grad;
    (void)model(batch(rank, 0));
    EXPECT_THAT(log, ElementsAre("gather 2", "gather 0", "gather 1"));
  });
}

TEST(GatheredFeatures, UnshardAndReshardByHand) {
  run_rank_threads(3, [](int rank, const Group& group) {
    auto model = blocks_in(group);
    auto& block = model->module().blocks[0];
    auto handle = block->unshard(/*async_op=*/true);
    handle.wait();
    const auto expected = test::plain_net()->blocks[0]->up->weight;
    EXPECT_TRUE(at::equal(block->module().up->weight, expected));
    handle.wait();
    block->reshard();
    EXPECT_EQ(bytes_there(block->module()), 0u);
    (void)block->unshard(/*async_op=*/true);
    block_loss(model(batch(rank, 0)), rank, 0).backward();
    expect_shards_of(plain_gradients(3), model->parameters(), group);
  });
}

TEST(GatheredFeatures, ShardsAreThisRanksRows) {
  run_rank_threads(4, [](int rank, const Group& group) {
    auto model = blocks_in(group);
    const auto whole = test::plain_net()->parameters();
    const auto shards = model->parameters();
    ASSERT_EQ(shards.size(), whole.size());
    for (size_t i = 0; i < shards.size(); ++i) {
      const auto chunks = whole[i].chunk(4);
      const auto wanted = static_cast<size_t>(rank) < chunks.size() ? chunks[rank] : whole[i].narrow(0, 0, 0);
      EXPECT_TRUE(at::equal(shards[i], wanted)) << i;
      EXPECT_TRUE(shards[i].is_leaf() && shards[i].requires_grad() && !shards[i].is_view());
    }
  });
}

TEST(GatheredFeatures, WriteIsForEveryone) {
  run_rank_threads(3, [](int rank, const Group& group) {
    auto model = blocks_in(group);
    int num_calls = 0;
    model->write([&](const std::string& name, const at::Tensor& full) {
      ++num_calls;
      if (name == "block1.up.weight") full.copy_(at::arange(60).view({10, 6}));
    });
    EXPECT_EQ(num_calls, rank == 0 ? 13 : 0);
    const auto whole = test::whole_parameters(model);
    auto expected = test::plain_net()->parameters();
    for (size_t i = 0; i < whole.size(); ++i) {
      const auto wanted = i == 5 ? at::arange(60, at::kFloat).view({10, 6}) : expected[i];
      EXPECT_TRUE(at::equal(whole[i], wanted)) << i;
    }
    EXPECT_THROW(model->write([](const std::string&, const at::Tensor&) { throw std::runtime_error("no file"); }),
                 c10::Error);
    block_loss(model(batch(rank, 0)), rank, 0).backward();  // and nobody is stuck
  });
}

TEST(GatheredFeatures, MetaModulesAreWrittenAfterwards) {
  run_rank_threads(2, [](int rank, const Group& group) {
    struct OnMeta : torch::nn::Module {
      OnMeta() { weight = register_parameter("weight", at::empty({5, 3}, at::kMeta)); }
      at::Tensor forward(at::Tensor x) { return x.matmul(weight.t()); }
      at::Tensor weight;
    };
    auto net = std::make_shared<OnMeta>();
    auto model = fully_shard(net, in_group(group));
    model->write([&](const std::string&, const at::Tensor& full) { full.copy_(at::arange(15).view({5, 3})); });
    const auto expected = at::arange(15, at::kFloat).view({5, 3}).chunk(2)[rank];
    EXPECT_TRUE(at::equal(model->parameters()[0], expected));
    EXPECT_TRUE(net->weight.is_cpu());
    model(at::ones({2, 3})).sum().backward();
    EXPECT_TRUE(at::equal(model->parameters()[0].grad(), at::full_like(expected, 2)));
  });
}

TEST(GatheredFeatures, BackwardAfterAStepIsNoticed) {
  run_rank_threads(2, [](int rank, const Group& group) {
    auto model = blocks_in(group);
    torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(0.1));
    const auto loss = model(batch(rank, 0)).sum();
    loss.backward({}, /*retain_graph=*/true);
    optimizer.step();
    EXPECT_THROW(loss.backward(), c10::Error);
  });
}

// Of one graph, and of the same forward pass.
TEST(GatheredFeatures, SecondBackwardAddsUp) {
  run_rank_threads(2, [](int rank, const Group& group) {
    auto model = blocks_in(group);
    const auto loss = block_loss(model(batch(rank, 0)), rank, 0);
    loss.backward({}, /*retain_graph=*/true);
    loss.backward();
    expect_shards_of(plain_gradients(2), model->parameters(), group, /*factor=*/2);
  });
}

TEST(GatheredFeatures, EvaluationBetweenStepsChangesNothing) {
  run_rank_threads(2, [](int rank, const Group& group) {
    auto model = blocks_in(group);
    const auto evaluate = [&] {
      const at::NoGradGuard no_grad;
      return model(batch(7, 7));
    };
    const auto expected = test::plain_net()->forward(batch(7, 7));
    EXPECT_TRUE(are_rounded_alike(evaluate(), expected, test::kBlockSums));
    auto loss = block_loss(model(batch(rank, 0)), rank, 0);
    EXPECT_TRUE(are_rounded_alike(evaluate(), expected, test::kBlockSums));
    loss.backward();
    EXPECT_TRUE(are_rounded_alike(evaluate(), expected, test::kBlockSums));
    expect_shards_of(plain_gradients(2), model->parameters(), group);
  });
}

TEST(GatheredFeatures, UnusedParameters) {
  run_rank_threads(2, [](int rank, const Group& group) {
    auto net = cohort::test::seeded_net<cohort::test::Branches>();
    auto model = fully_shard(net, in_group(group));
    const auto run = [&] {
      model->zero_grad();
      model(batch_of(rank, 0), rank == 0, false).sum().backward();
      return model->named_parameters();
    };
    const auto grads = run();
    auto reference = cohort::test::seeded_net<cohort::test::Branches>();
    reference(batch_of(0, 0), true, false).sum().backward();
    const auto expected = reference->left->weight.grad() / 2;
    EXPECT_TRUE(
        are_rounded_alike(grads["left.weight"].grad(), expected.chunk(2)[rank], 8 + 4 + 4 + 2, largest_of(expected)));
    EXPECT_FALSE(grads["right.weight"].grad().defined());
    model->set_reduce_scatter_unused_params(true);
    EXPECT_TRUE(at::equal(run()["right.weight"].grad(), at::zeros({2, 4})));
  });
}

TEST(GatheredFeatures, DtypesInOneGroup) {
  run_rank_threads(2, [](int rank, const Group& group) {
    auto net = cohort::test::seeded_net<cohort::test::Mixed>();
    auto model = fully_shard(net, in_group(group));
    model(batch_of(rank, 0)).square().mean().backward();
    auto reference = cohort::test::seeded_net<cohort::test::Mixed>();
    const auto loss = [&](int of) { return reference(batch_of(of, 0)).square().mean(); };
    ((loss(0) + loss(1)) / 2).backward();
    for (const auto& entry : model->named_parameters()) {
      const auto wanted = reference->named_parameters()[entry.key()].grad();
      EXPECT_EQ(entry.value().grad().scalar_type(), wanted.scalar_type());
      // Double precision goes through float32 on its way.
      const auto own = entry.value().grad().to(at::kFloat), expected = wanted.chunk(2)[rank].to(at::kFloat);
      EXPECT_TRUE(are_rounded_alike(own, expected, 2 * (8 + 8 + 8) + 4 + 2, largest_of(wanted))) << entry.key();
    }
  });
}

// What is computed again in the middle of backward finds the whole parameters.
TEST(GatheredFeatures, ActivationCheckpointing) {
  run_rank_threads(2, [](int rank, const Group& group) {
    struct Checkpointed : torch::nn::Module {
      explicit Checkpointed(std::shared_ptr<test::ShardedNet> inner) : net(std::move(inner)) {
        register_module("net", net);
      }
      at::Tensor forward(at::Tensor x) {
        x = net->in(x);
        for (auto& block : net->blocks) x = activation::checkpoint([&](const at::Tensor& y) { return block(y); }, x);
        return net->out(x);
      }
      std::shared_ptr<test::ShardedNet> net;
    };
    auto blocks = test::net_of_sharded_blocks(in_group(group));
    auto model = fully_shard(std::make_shared<Checkpointed>(blocks), in_group(group));
    for (int round = 0; round < 2; ++round) {
      model->zero_grad();
      block_loss(model(batch(rank, 0)), rank, 0).backward();
      expect_shards_of(plain_gradients(2), model->parameters(), group);
    }
    EXPECT_EQ(bytes_there(*blocks), 0u);
    model->zero_grad();
    {
      const auto local = model->no_sync();
      block_loss(model(batch(rank, 0)), rank, 0).backward();
    }
    block_loss(model(batch(rank, 0)), rank, 0).backward();
    expect_shards_of(plain_gradients(2), model->parameters(), group, /*factor=*/2);
  });
}

TEST(GatheredFeatures, OtherMethodsAsForward) {
  struct TwoWays : torch::nn::Module {
    TwoWays() { layer = register_module("layer", torch::nn::Linear(4, 4)); }
    at::Tensor forward(at::Tensor x) { return layer(x); }
    at::Tensor twice(const at::Tensor& x, double factor) { return layer(layer(x)) * factor; }
    torch::nn::Linear layer{nullptr};
  };
  run_rank_threads(2, [](int rank, const Group& group) {
    auto net = std::make_shared<TwoWays>();
    test::initialize(*net, 3);
    auto plain = std::make_shared<TwoWays>();
    test::initialize(*plain, 3);
    auto model = fully_shard(net, in_group(group));
    const auto x = batch(0, 0);
    const auto got = model->forward_method(&TwoWays::twice, x, 2.0);
    EXPECT_TRUE(are_rounded_alike(got, plain->twice(x, 2.0), 4 + 4));
    got.sum().backward();
    plain->twice(x, 2.0).sum().backward();
    const auto expected = plain->layer->weight.grad();
    EXPECT_TRUE(
        are_rounded_alike(model->parameters()[0].grad(), expected.chunk(2)[rank], 3 * 4 + 5 + 2, largest_of(expected)));
  });
}

// Optimizers that step as soon as a gradient is there.
TEST(GatheredFeatures, GradientHooksOfShards) {
  for (const bool one_memory : {false, true}) {
    run_rank_threads(2,
                     [&](int rank, const Group& group) {
                       auto options = in_group(group);
                       options.one_memory = one_memory;
                       auto model = fully_shard(test::net_of_sharded_blocks(options), options);
                       std::vector<parallel::GradientHook> hooks;
                       int num_calls = 0;
                       for (const auto& shard : model->parameters()) {
                         hooks.push_back(parallel::add_gradient_hook(shard, [&](const at::Tensor& parameter) {
                           EXPECT_TRUE(parameter.grad().defined());
                           ++num_calls;
                         }));
                       }
                       block_loss(model(batch(rank, 0)), rank, 0).backward();
                       EXPECT_EQ(num_calls, 13);
                       barrier({.group = group});
                     },
                     {.make_backend = comm::make_shm_backend});
  }
}

TEST(GatheredFeatures, GradientsCanBeZeroedInPlace) {
  run_rank_threads(2, [](int rank, const Group& group) {
    auto model = blocks_in(group);
    for (int round = 0; round < 2; ++round) {
      block_loss(model(batch(rank, 0)), rank, 0).backward();
      expect_shards_of(plain_gradients(2), model->parameters(), group);
      model->zero_grad(/*set_to_none=*/false);
      EXPECT_EQ(model->parameters()[0].grad().abs().sum().item<float>(), 0);
    }
  });
}

TEST(GatheredFeatures, SwitchesOfGatheredParameters) {
  run_rank_threads(2, [](int rank, const Group& group) {
    auto model = blocks_in(group);
    auto other = blocks_in(group);
    share_comm_ctx({model.get(), other.get()});
    model->set_allocate_memory_from_process_group_for_comm(true);  // Gloo and shm have none of their own: as without
    model->set_reduce_scatter_max_input_buffers(2);
    EXPECT_THROW(model->set_reduce_scatter_max_input_buffers(0), c10::ValueError);
    std::vector<std::string> log;
    auto& block = model->module().blocks[1];
    block->set_custom_all_gather(std::make_shared<NamedGather>("1", &log));
    // Of what backward does not need: an addition.
    struct Bias : torch::nn::Module {
      Bias() { bias = register_parameter("bias", at::ones({6})); }
      at::Tensor forward(at::Tensor x) { return x + bias; }
      at::Tensor bias;
    };
    auto added = fully_shard(std::make_shared<Bias>(), in_group(group));
    auto net = fully_shard(torch::nn::Sequential(torch::nn::Linear(4, 6), added), in_group(group));
    added->set_custom_all_gather(std::make_shared<NamedGather>("bias", &log));
    added->set_unshard_in_backward(false);
    net(batch(rank, 0)).sum().backward();
    EXPECT_THAT(log, ElementsAre("gather bias"));
    EXPECT_TRUE(at::equal(added->parameters()[0].grad(), at::full({3}, 5)));
    // One after the other, on one list of reductions.
    (block_loss(model(batch(rank, 0)), rank, 0) + 0 * other(batch(rank, 0)).sum()).backward();
    expect_shards_of(plain_gradients(2), model->parameters(), group);
  });
}

// What tensors are in, and what else is passed on.
struct Arguments : torch::nn::Module {
  struct Cache {
    int num_calls = 0;
    Cache() = default;
    Cache(const Cache&) = delete;
  };
  Arguments() { weight = register_parameter("weight", at::eye(4)); }
  std::pair<at::Tensor, std::vector<at::Tensor>> forward(const at::Tensor& x, std::vector<at::Tensor> more,
                                                         std::optional<at::Tensor> bias, int times,
                                                         const std::string& how, Cache& cache) {
    ++cache.num_calls;
    dtypes = {x.scalar_type(), more.at(1).scalar_type(), bias->scalar_type(), indices(more).scalar_type()};
    return {x.matmul(weight) * times + (how == "add" ? *bias : -*bias), {more[0].matmul(weight) + more[1]}};
  }
  static at::Tensor indices(const std::vector<at::Tensor>& more) { return more.at(2); }
  at::Tensor weight;
  std::vector<c10::ScalarType> dtypes;
};

TEST(GatheredFeatures, ArgumentsAndResultsOfAllKinds) {
  for (const bool is_mixed : {false, true}) {
    run_rank_threads(2, [&](int, const Group& group) {
      auto options = in_group(group);
      if (is_mixed) options.mp_policy = {.param_dtype = at::kBFloat16, .output_dtype = at::kDouble};
      auto model = fully_shard(std::make_shared<Arguments>(), options);
      Arguments::Cache cache;
      const auto x = at::ones({2, 4}).set_requires_grad(true);
      auto y = at::ones({2, 4}).set_requires_grad(true);
      auto unused = at::ones({3}).set_requires_grad(true);
      const auto [first, others] =
          model->forward(x, {y, y * 2, at::zeros({1}, at::kLong), unused}, x * 3, 2, "add", cache);
      EXPECT_EQ(cache.num_calls, 1);
      const auto computed = is_mixed ? at::kBFloat16 : at::kFloat;
      EXPECT_THAT(model->module().dtypes, ElementsAre(computed, computed, computed, at::kLong));
      EXPECT_EQ(others.at(0).scalar_type(), is_mixed ? at::kDouble : at::kFloat);
      EXPECT_TRUE(at::equal(first.to(at::kFloat), at::full({2, 4}, 5.0f)));
      (first.sum() + others.at(0).sum()).backward();
      EXPECT_TRUE(at::equal(x.grad(), at::full({2, 4}, 5.0f)));
      EXPECT_TRUE(at::equal(y.grad(), at::full({2, 4}, 3.0f)));
      EXPECT_FALSE(unused.grad().defined());
      EXPECT_TRUE(at::equal(model->parameters()[0].grad(), at::full({2, 4}, 6.0f)));
      EXPECT_EQ(model->parameters()[0].scalar_type(), at::kFloat);
    });
  }
}

TEST(GatheredFeatures, ShardingWithoutModules) {
  run_rank_threads(3, [](int rank, const Group& group) {
    const auto weight = test::values_like(at::empty({7, 4}), 1).set_requires_grad(true);
    const auto plain = weight.detach().clone().set_requires_grad(true);
    Sharding sharding({{"weight", weight}}, in_group(group));
    EXPECT_TRUE(sharding.follows_passes());
    const auto x = batch(rank, 0);
    at::Tensor result;
    {
      auto pass = sharding.forward();
      result = pass.inputs({x}).at(0).matmul(weight.t());
      pass.outputs({result});
    }
    result.square().mean().backward();
    std::vector<at::Tensor> losses;
    for (int other = 0; other < 3; ++other) losses.push_back(batch(other, 0).matmul(plain.t()).square().mean());
    at::stack(losses).mean().backward();
    const auto chunks = plain.grad().chunk(3);
    EXPECT_TRUE(
        are_rounded_alike(sharding.parameters()[0].grad(), chunks.at(rank), 4 + 5 + 3, largest_of(plain.grad())));
    EXPECT_EQ(sharding.sharded_parameters()[0].offset, 3 * 4 * rank);
  });
}

// A graph may outlive the wrapper.
TEST(GatheredFeatures, TheWrapperMayGoBeforeTheGraph) {
  run_rank_threads(2, [](int rank, const Group& group) {
    at::Tensor loss;
    {
      auto model = blocks_in(group);
      loss = block_loss(model(batch(rank, 0)), rank, 0);
    }
    EXPECT_THROW(loss.backward(), c10::Error);
  });
}

}  // namespace
}  // namespace cohort::fsdp
