/// blocks.h where parameters are gathered, and the gradients that its shards must get.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/parallel/fsdp/blocks.h"
#include "tests/support/rounding.h"

namespace cohort::fsdp::test {

inline Options in_group(const Group& group) { return {.process_group = group, .one_memory = false}; }

inline FullySharded<ShardedNet> blocks_in(const Group& group) {
  return fully_shard(net_of_sharded_blocks(in_group(group)), in_group(group));
}

/// These log what they are called for.
struct NamedGather final : AllGather {
  NamedGather(std::string name, std::vector<std::string>* log) : name(std::move(name)), log(log) {}
  WorkPtr operator()(const at::Tensor& output, const at::Tensor& input, const Group& group, bool async_op) override {
    log->push_back("gather " + name);
    return AllGather::operator()(output, input, group, async_op);
  }
  std::string name;
  std::vector<std::string>* log;
};
struct NamedReduce final : ReduceScatter {
  NamedReduce(std::string name, std::vector<std::string>* log) : name(std::move(name)), log(log) {}
  WorkPtr operator()(const at::Tensor& output, const at::Tensor& input, const Group& group, ReduceOp op,
                     bool async_op) override {
    log->push_back("reduce " + name);
    return ReduceScatter::operator()(output, input, group, op, async_op);
  }
  std::string name;
  std::vector<std::string>* log;
};

inline size_t bytes_there(const torch::nn::Module& module) {
  size_t bytes = 0;
  for (const auto& parameter : module.parameters()) bytes += parameter.storage().nbytes();
  return bytes;
}

// The gradients of one process for the batches of all ranks.
inline std::vector<at::Tensor> plain_gradients(int world_size) {
  auto net = plain_net();
  std::vector<at::Tensor> losses;
  for (int rank = 0; rank < world_size; ++rank) losses.push_back(block_loss(net->forward(batch(rank, 0)), rank, 0));
  at::stack(losses).mean().backward();
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : net->parameters()) gradients.push_back(parameter.grad());
  return gradients;
}

inline void expect_shards_of(const std::vector<at::Tensor>& wanted, const std::vector<at::Tensor>& shards,
                             const Group& group, double factor = 1) {
  ASSERT_EQ(wanted.size(), shards.size());
  const auto rank = static_cast<size_t>(group->getRank());
  for (size_t i = 0; i < shards.size(); ++i) {
    const auto chunks = wanted[i].chunk(group->getSize());
    if (rank >= chunks.size()) {
      EXPECT_EQ(shards[i].numel(), 0);
      continue;
    }
    ASSERT_TRUE(shards[i].grad().defined()) << i;
    const double largest = cohort::test::largest_of(wanted[i]) * factor;
    EXPECT_TRUE(cohort::test::are_rounded_alike(shards[i].grad(), chunks[rank] * factor, kBlockSums, largest)) << i;
  }
}

}  // namespace cohort::fsdp::test
