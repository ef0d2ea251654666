// Derivatives of gradients through fully_shard.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/parallel/fsdp/gathered_blocks.h"
#include "tests/support/rank_threads.h"

namespace cohort::fsdp {
namespace {

using cohort::test::run_rank_threads;
using test::batch;
using test::expect_shards_of;
using test::in_group;

// A penalty on the size of gradients, as of critics: its own gradient needs the parameters of the pass before once more.
class SecondDerivatives : public testing::TestWithParam<bool> {};

TEST_P(SecondDerivatives, AreThoseOfOneProcess) {
  const auto loss_of = [](const at::Tensor& output, const at::Tensor& input) {
    const auto slope = torch::autograd::grad({output.tanh().sum()}, {input}, {}, /*retain_graph=*/true,
                                             /*create_graph=*/true)[0];
    return (slope.square().sum(1).sqrt() - 1).square().mean() + output.square().mean();
  };
  auto net = test::plain_net();
  std::vector<at::Tensor> losses;
  for (int rank = 0; rank < 2; ++rank) {
    const auto input = batch(rank, 0).requires_grad_();
    losses.push_back(loss_of(net->forward(input), input));
  }
  at::stack(losses).mean().backward();
  std::vector<at::Tensor> expected;
  for (const auto& parameter : net->parameters()) expected.push_back(parameter.grad());
  run_rank_threads(2, [&](int rank, const Group& group) {
    auto options = in_group(group);
    options.one_memory = GetParam();
    auto model = fully_shard(test::net_of_sharded_blocks(options), options);
    for (int step = 0; step < 2; ++step) {
      const auto input = batch(rank, 0).requires_grad_();
      loss_of(model(input), input).backward();
      expect_shards_of(expected, model->parameters(), group, step + 1);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(OneMemory, SecondDerivatives, testing::Bool());

}  // namespace
}  // namespace cohort::fsdp
