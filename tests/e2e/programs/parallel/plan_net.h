/// A small transformer, and how ranks share its layers: those of tensor_plan_python_rank.py.
#pragma once

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "cohort/parallel/tensor/parallelize_module.h"

namespace cohort::test {

inline constexpr int64_t kWords = 24, kWidth = 16, kHeadSize = 4, kPositions = 8;

struct PlanNetImpl : torch::nn::Module {
  explicit PlanNetImpl(int64_t words = kWords) {
    embedding = register_module("embedding", torch::nn::Embedding(words, kWidth));
    norm1 = register_module("norm1", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})));
    query = register_module("query", torch::nn::Linear(kWidth, kWidth));
    key = register_module("key", torch::nn::Linear(kWidth, kWidth));
    value = register_module("value", torch::nn::Linear(kWidth, kWidth));
    output = register_module("output", torch::nn::Linear(kWidth, kWidth));
    norm2 = register_module("norm2", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})));
    up = register_module("up", torch::nn::Linear(kWidth, 4 * kWidth));
    down = register_module("down", torch::nn::Linear(4 * kWidth, kWidth));
    head = register_module("head", torch::nn::Linear(torch::nn::LinearOptions(kWidth, words).bias(false)));
  }
  at::Tensor forward(const at::Tensor& tokens) {
    const auto x = embedding(tokens), y = norm1(x);
    const auto heads = [&](torch::nn::Linear& layer) {
      return layer(y).unflatten(-1, {-1, kHeadSize}).transpose(1, 2);
    };
    const auto attended =
        at::scaled_dot_product_attention(heads(query), heads(key), heads(value), {}, 0, /*is_causal=*/true);
    const auto z = x + output(attended.transpose(1, 2).flatten(2));
    return head(z + down(at::gelu(up(norm2(z)))));
  }
  torch::nn::Embedding embedding{nullptr};
  torch::nn::LayerNorm norm1{nullptr}, norm2{nullptr};
  torch::nn::Linear query{nullptr}, key{nullptr}, value{nullptr}, output{nullptr}, up{nullptr}, down{nullptr},
      head{nullptr};
};
TORCH_MODULE(PlanNet);

inline at::Tensor drawn(c10::IntArrayRef shape, uint64_t seed) {
  return at::randn(shape, at::make_generator<at::CPUGeneratorImpl>(seed), at::kDouble).to(at::kFloat);
}

/// The same numbers on all ranks.
inline void draw_parameters(PlanNet& net) {
  const at::NoGradGuard no_grad;
  uint64_t seed = 1;
  for (auto& parameter : net->parameters()) parameter.copy_(drawn(parameter.sizes(), seed++) * 0.2);
}

inline ParallelPlan plan_of_net() {
  return {{"embedding", RowwiseParallel()},
          {"query", ColwiseParallel{.num_heads = kWidth / kHeadSize}},
          {"[kv][ea]*", ColwiseParallel{.num_heads = kWidth / kHeadSize}},
          {"up", ColwiseParallel()},
          {"output", RowwiseParallel()},
          {"down", RowwiseParallel()},
          {"norm?", SequenceParallel()},
          {"head", ColwiseParallel()}};
}

/// [rows, kPositions + 1]: inputs and, one further, targets.
inline at::Tensor tokens_of(int64_t rows, int64_t words) {
  return (at::arange(rows * (kPositions + 1)) * 7).remainder(words).view({rows, kPositions + 1});
}

}  // namespace cohort::test
