// Passes that are not one forward and one backward, and what forward hides, where parameters are gathered.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/shm/make_shm_backend.h"
#include "cohort/parallel/precision/autocast.h"
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
using test::bytes_there;
using test::in_group;

// One forward pass whose input needs no gradient, beside one whose input does, as of real and of made-up data.
TEST(GatheredPasses, PassesWithAndWithoutInputsThatNeedGradients) {
  run_rank_threads(2, [](int rank, const Group& group) {
    auto block = std::make_shared<test::Block>();
    auto plain = std::make_shared<test::Block>();
    test::initialize(*block, 1);
    test::initialize(*plain, 1);
    auto model = fully_shard(torch::nn::Sequential(fully_shard(block, in_group(group))), in_group(group));
    const auto input = [](int of, int step) { return test::values_like(at::empty({5, 6}), 30 + 10 * step + of); };
    for (const bool is_real_first : {true, false}) {
      model->zero_grad();
      plain->zero_grad();
      const auto made = [&](int of) { return input(of, 1).set_requires_grad(true); };
      const auto first = model(is_real_first ? input(rank, 0) : made(rank)).square().sum();
      (first + model(is_real_first ? made(rank) : input(rank, 0)).square().sum()).backward();
      const auto loss = [&](int of) {
        return plain->forward(input(of, 0)).square().sum() + plain->forward(input(of, 1)).square().sum();
      };
      ((loss(0) + loss(1)) / 2).backward();
      const auto shards = model->parameters();
      for (size_t i = 0; i < shards.size(); ++i) {
        const auto expected = plain->parameters()[i].grad();
        EXPECT_TRUE(
            are_rounded_alike(shards[i].grad(), expected.chunk(2)[rank], test::kBlockSums, largest_of(expected)))
            << i;
      }
      EXPECT_EQ(bytes_there(*block), 0u);
    }
  });
}

// A block that the pass with a reduction leaves out still has its part of the sum reduced.
TEST(GatheredPasses, AccumulatedGradientsOfASkippedBlock) {
  run_rank_threads(2, [](int rank, const Group& group) {
    auto net = cohort::test::seeded_net<cohort::test::Branches>();
    auto left = fully_shard(net->left, in_group(group));
    struct Skipping : torch::nn::Module {
      at::Tensor forward(at::Tensor x, bool uses_left) {
        x = trunk->forward(x);
        return uses_left ? x + left(x) : x;
      }
      torch::nn::Linear trunk{nullptr};
      FullySharded<torch::nn::LinearImpl> left{nullptr};
    };
    auto skipping = std::make_shared<Skipping>();
    skipping->trunk = skipping->register_module("trunk", net->trunk);
    skipping->left = left;
    skipping->register_module("left", left.ptr());
    auto model = fully_shard(skipping, in_group(group));
    {
      const auto local = model->no_sync();
      model(batch_of(rank, 0), true).sum().backward();
    }
    model(batch_of(rank, 1), false).sum().backward();
    auto reference = cohort::test::seeded_net<cohort::test::Branches>();
    ((reference(batch_of(0, 0), true, false).sum() + reference(batch_of(1, 0), true, false).sum()) / 2).backward();
    ASSERT_TRUE(left->parameters()[0].grad().defined());
    const auto expected = reference->left->weight.grad();
    EXPECT_TRUE(
        are_rounded_alike(left->parameters()[0].grad(), expected.chunk(2)[rank], 8 + 4 + 4 + 2, largest_of(expected)));
  });
}

// Outputs in which fully_shard sees no tensor.
TEST(GatheredPasses, HiddenOutputs) {
  struct Hidden {
    at::Tensor loss;
  };
  struct Hiding : torch::nn::Module {
    Hiding() { layer = register_module("layer", torch::nn::Linear(4, 4)); }
    Hidden forward(at::Tensor x) { return {layer(x).sum()}; }
    void remember(const at::Tensor& x, std::vector<at::Tensor>& results) { results.push_back(layer(x)); }
    torch::nn::Linear layer{nullptr};
  };
  run_rank_threads(2, [](int rank, const Group& group) {
    auto model = fully_shard(std::make_shared<Hiding>(), in_group(group));
    model(batch(rank, 0)).loss.backward();
    EXPECT_TRUE(at::equal(model->parameters()[1].grad(), at::full({2}, 5)));
    std::vector<at::Tensor> results;
    model->forward_method(&Hiding::remember, batch(rank, 0), results);
    EXPECT_EQ(results.size(), 1u);
  });
}

TEST(GatheredPasses, FreezingThroughShards) {
  for (const bool one_memory : {false, true}) {
    run_rank_threads(2,
                     [&](int rank, const Group& group) {
                       auto options = in_group(group);
                       options.one_memory = one_memory;
                       auto block = std::make_shared<test::Block>();
                       auto model = fully_shard(block, options);
                       model->parameters()[0].set_requires_grad(false);
                       model(test::values_like(at::empty({5, 6}), rank)).sum().backward();
                       EXPECT_FALSE(block->parameters()[0].requires_grad());
                       EXPECT_FALSE(model->parameters()[0].grad().defined());
                       EXPECT_TRUE(model->parameters()[1].grad().defined());
                       barrier({.group = group});
                     },
                     {.make_backend = comm::make_shm_backend});
  }
}

// The gradients of two passes whose parameters autocast has cast once.
std::vector<at::Tensor> of_one_region(const std::function<at::Tensor(at::Tensor)>& forward,
                                      const std::vector<at::Tensor>& parameters, int rank, const std::string& order) {
  for (const auto& parameter : parameters) parameter.mutable_grad() = at::Tensor();
  std::vector<at::Tensor> losses;
  {
    const Autocast region(at::kCPU);
    for (const int pass : {0, 1}) losses.push_back(forward(batch(rank, pass)).to(at::kFloat).square().sum());
    EXPECT_TRUE(at::autocast::is_autocast_cache_enabled());
  }
  if (order == "together") {
    (losses[0] + losses[1]).backward();
  } else {
    const bool is_reversed = order == "reversed";
    losses[is_reversed].backward();
    losses[!is_reversed].backward();
  }
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : parameters) gradients.push_back(parameter.grad());
  return gradients;
}

TEST(GatheredPasses, OneRegionOfAutocastForTwoForwardPasses) {
  for (const bool one_memory : {false, true}) {
    for (const std::string order : {"together", "in order", "reversed"}) {
      run_rank_threads(2,
                       [&](int rank, const Group& group) {
                         auto options = in_group(group);
                         options.one_memory = one_memory;
                         auto plain = test::plain_net();
                         std::vector<at::Tensor> wanted;
                         for (const int of : {0, 1}) {
                           const auto gradients = of_one_region([&](const at::Tensor& x) { return plain->forward(x); },
                                                                plain->parameters(), of, order);
                           for (size_t i = 0; i < gradients.size(); ++i) {
                             if (of == 0) wanted.push_back(at::zeros_like(gradients[i]));
                             wanted[i] += gradients[i] / 2;
                           }
                         }
                         auto model = fully_shard(test::net_of_sharded_blocks(options), options);
                         const auto shards = of_one_region([&](const at::Tensor& x) { return model(x); },
                                                           model->parameters(), rank, order);
                         for (size_t i = 0; i < shards.size(); ++i) {
                           const auto mine = wanted[i].chunk(2);
                           if (rank >= static_cast<int>(mine.size())) continue;
                           ASSERT_TRUE(shards[i].defined()) << i;
                           EXPECT_TRUE(at::allclose(shards[i], mine[rank], 1e-2, 1e-3))
                               << i << " " << order << (one_memory ? ", one memory" : ", gathered");
                         }
                         barrier({.group = group});
                       },
                       {.make_backend = comm::make_shm_backend});
    }
  }
}

}  // namespace
}  // namespace cohort::fsdp
