/// A net of blocks, with and without fully_shard, and its training on the batches of some ranks or of all of them.
#pragma once

#include <ATen/ATen.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cohort/parallel/fsdp/fully_shard.h"
#include "cohort/parallel/optim/clip_grad.h"

#include "tests/support/rounding.h"

namespace cohort::fsdp::test {

struct Block : torch::nn::Module {
  Block() {
    up = register_module("up", torch::nn::Linear(6, 10));
    down = register_module("down", torch::nn::Linear(torch::nn::LinearOptions(10, 6).bias(false)));
  }
  at::Tensor forward(at::Tensor x) { return x + down(at::tanh(up(x))); }
  torch::nn::Linear up{nullptr}, down{nullptr};
};

/// `Blocks`: std::shared_ptr<Block> or FullySharded<Block>.
template <class OneBlock>
struct BlockNet : torch::nn::Module {
  explicit BlockNet(std::vector<OneBlock> made) : blocks(std::move(made)) {
    in = register_module("in", torch::nn::Linear(4, 6));
    for (size_t i = 0; i < blocks.size(); ++i) register_module("block" + std::to_string(i), pointer(blocks[i]));
    out = register_module("out", torch::nn::Linear(6, 3));
  }
  at::Tensor forward(at::Tensor x) {
    x = in(x);
    for (auto& block : blocks) x = call(block, x);
    return out(x);
  }
  static auto pointer(const OneBlock& block) {
    if constexpr (requires { block.ptr(); }) {
      return block.ptr();
    } else {
      return block;
    }
  }
  static at::Tensor call(OneBlock& block, const at::Tensor& x) {
    if constexpr (requires { block.ptr(); }) {
      return block(x);
    } else {
      return block->forward(x);
    }
  }
  torch::nn::Linear in{nullptr}, out{nullptr};
  std::vector<OneBlock> blocks;
};

/// Every element of every tensor another number.
inline at::Tensor values_like(const at::Tensor& tensor, int64_t seed) {
  const auto numbers = at::arange(tensor.numel(), at::kDouble) * 0.37 + static_cast<double>(seed) * 1.7;
  return (at::sin(numbers) * 0.5).view(tensor.sizes()).to(tensor.options());
}

/// Before anything is sharded.
inline void initialize(torch::nn::Module& module, int64_t seed) {
  const at::NoGradGuard no_grad;
  for (auto& parameter : module.parameters()) parameter.copy_(values_like(parameter, ++seed));
}

constexpr int kNumBlocks = 3;
/// That a number of a gradient comes from, one after the other: of a pass through the net and back, of the rows and the ranks.
constexpr int64_t kBlockSums = 2 * (4 + kNumBlocks * (6 + 10) + 6) + 5 + 4;

inline std::shared_ptr<BlockNet<std::shared_ptr<Block>>> plain_net(c10::ScalarType dtype = at::kFloat) {
  std::vector<std::shared_ptr<Block>> blocks;
  for (int i = 0; i < kNumBlocks; ++i) {
    blocks.push_back(std::make_shared<Block>());
    initialize(*blocks.back(), 10 * i);
  }
  auto net = std::make_shared<BlockNet<std::shared_ptr<Block>>>(blocks);
  initialize(*net->in, 100);
  initialize(*net->out, 200);
  net->to(dtype);
  return net;
}

using ShardedNet = BlockNet<FullySharded<Block>>;

/// Each block in a group of its own; the caller wraps the whole.
inline std::shared_ptr<ShardedNet> net_of_sharded_blocks(const Options& options, c10::ScalarType dtype = at::kFloat,
                                                         c10::Device device = at::kCPU) {
  std::vector<FullySharded<Block>> blocks;
  for (int i = 0; i < kNumBlocks; ++i) {
    auto block = std::make_shared<Block>();
    initialize(*block, 10 * i);
    block->to(device, dtype);
    blocks.push_back(fully_shard(block, options));
  }
  auto net = std::make_shared<ShardedNet>(blocks);
  initialize(*net->in, 100);
  initialize(*net->out, 200);
  net->in->to(device, dtype);
  net->out->to(device, dtype);
  return net;
}

/// The first two blocks in one group, the third one in another.
inline std::shared_ptr<ShardedNet> net_of_blocks_in_lists(const Options& options) {
  std::vector<std::shared_ptr<Block>> made;
  for (int i = 0; i < kNumBlocks; ++i) {
    made.push_back(std::make_shared<Block>());
    initialize(*made.back(), 10 * i);
  }
  auto blocks = fully_shard(std::vector{made[0], made[1]}, options);
  blocks.push_back(fully_shard(made[2], options));
  auto net = std::make_shared<ShardedNet>(blocks);
  initialize(*net->in, 100);
  initialize(*net->out, 200);
  return net;
}

inline at::Tensor batch(int rank, int64_t step) { return values_like(at::empty({5, 4}), 1000 + 10 * step + rank); }
inline at::Tensor block_loss(const at::Tensor& output, int rank, int64_t step) {
  return (output.to(at::kFloat) - values_like(at::empty({5, 3}), 5000 + 10 * step + rank)).square().mean();
}

/// How far the parameters, of which none is larger than 1, may be from those of one process after so many steps.
inline double rounding_of_steps(int64_t steps) { return cohort::test::rounding(at::kFloat, steps * kBlockSums, 1.0); }

/// NaN is far from everything.
inline double furthest(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  double largest = a.size() == b.size() ? 0 : 1e9;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (a[i].numel() == 0) continue;
    const auto here = (a[i].to(at::kDouble) - b[i]).abs().max().item<double>();
    largest = std::isnan(here) ? 1e9 : std::max(largest, here);
  }
  return largest;
}

/// All whole parameters, by name, on every rank. Collective.
inline std::vector<at::Tensor> whole_parameters(FullySharded<ShardedNet>& model) {
  std::vector<ShardedModule*> modules = {model.get()};
  for (auto& block : model->module().blocks) modules.push_back(block.get());
  std::vector<at::Tensor> result;
  for (auto* const module : modules) module->unshard();
  for (const auto& parameter : model->module().parameters()) result.push_back(parameter.detach().clone());
  for (auto* const module : modules) module->reshard();
  return result;
}

}  // namespace cohort::fsdp::test
