// fully_shard where parameters are gathered and let go: against one process that has all ranks' batches.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <map>
#include <optional>
#include <set>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/shm/make_shm_backend.h"
#include "cohort/parallel/activation/checkpoint.h"
#include "tests/parallel/fsdp/blocks.h"
#include "tests/support/rank_threads.h"
#include "tests/support/rounding.h"

namespace cohort::fsdp {
namespace {

using test::batch;
using test::block_loss;
using test::plain_net;
using Words = std::set<std::string>;

Options gathered(const Group& group) { return {.process_group = group, .one_memory = false}; }

FullySharded<test::ShardedNet> sharded_net(const Options& options) {
  return fully_shard(test::net_of_sharded_blocks(options), options);
}

// Steps of AdamW on the batches of `ranks`; returns the losses.
template <class Forward, class Parameters>
std::vector<double> train_steps(Forward forward, const Parameters& parameters, const std::vector<int>& ranks,
                                const Words& words, const std::function<void(bool)>& set_sync = {}) {
  torch::optim::AdamW optimizer(parameters, torch::optim::AdamWOptions(0.01));
  const int num_micro = words.contains("accumulate") || words.contains("no_sync") ? 3 : 1;
  std::vector<double> losses;
  for (int step = 0; step < 6; ++step) {
    for (int micro = 0; micro < num_micro; ++micro) {
      if (words.contains("no_sync") && set_sync) set_sync(micro == num_micro - 1);
      std::vector<at::Tensor> of_ranks;
      for (const int rank : ranks) {
        auto output = forward(batch(rank, 10 * step + micro));
        if (words.contains("twice")) output = output + forward(batch(rank, 10 * step + 5));
        of_ranks.push_back(block_loss(output, rank, 10 * step + micro));
      }
      const auto loss = at::stack(of_ranks).mean() / num_micro;
      loss.backward();
      losses.push_back(loss.template item<double>());
    }
    if (words.contains("clip")) cohort::nn::utils::clip_grad_norm_(parameters, 0.05);
    optimizer.step();
    optimizer.zero_grad();
  }
  return losses;
}

std::vector<int> first_ranks(int world_size) {
  std::vector<int> ranks(static_cast<size_t>(world_size));
  for (int i = 0; i < world_size; ++i) ranks[static_cast<size_t>(i)] = i;
  return ranks;
}

void freeze_some(torch::nn::Module& net, const Words& words) {
  if (!words.contains("frozen")) return;
  for (const auto& entry : net.named_parameters()) {
    if (entry.key() == "block1.up.weight" || entry.key() == "in.bias") {
      at::Tensor(entry.value()).set_requires_grad(false);
    }
  }
}

class GatheredTraining : public testing::TestWithParam<std::tuple<int, Words>> {};

TEST_P(GatheredTraining, EqualsOneProcess) {
  const auto& [world_size, words] = GetParam();
  auto reference = plain_net();
  freeze_some(*reference, words);
  train_steps([&](const at::Tensor& x) { return reference->forward(x); }, reference->parameters(),
              first_ranks(world_size), words);
  const auto expected = reference->parameters();
  cohort::test::run_rank_threads(world_size, [&, words = words](int rank, const Group& group) {
    auto options = gathered(group);
    if (words.contains("keep")) options.reshard_after_forward = false;
    if (words.contains("let_go")) options.reshard_after_forward = true;
    auto model = sharded_net(options);
    freeze_some(model->module(), words);
    auto& blocks = model->module().blocks;
    if (words.contains("prefetch")) {
      model->set_modules_to_forward_prefetch({blocks[0].get(), blocks[1].get()});
      blocks[0]->set_modules_to_forward_prefetch({blocks[2].get()});
      blocks[2]->set_modules_to_backward_prefetch({blocks[1].get(), blocks[0].get()});
      model->set_reduce_scatter_max_input_buffers(3);
    }
    const auto set_sync = [&](bool value) { model->set_requires_gradient_sync(value); };
    train_steps([&](const at::Tensor& x) { return model(x); }, model->parameters(), {rank}, words, set_sync);
    EXPECT_LT(test::furthest(test::whole_parameters(model), expected), test::rounding_of_steps(6));
    barrier({.group = group});
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, GatheredTraining,
                         testing::Combine(testing::Values(1, 2, 3, 4),
                                          testing::Values(Words{}, Words{"clip", "keep"}, Words{"accumulate"},
                                                          Words{"no_sync", "let_go"}, Words{"frozen"},
                                                          Words{"twice", "let_go"}, Words{"prefetch"})));

}  // namespace
}  // namespace cohort::fsdp
