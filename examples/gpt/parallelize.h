// How ranks share a GPT: what is done to the model, in this order, before an optimizer is built on its parameters.
//
//   1. tp: each layer's weights are DTensors, in parts on the ranks of axis "tp".
//   2. blocks that backward computes again, instead of keeping what lies between.
//   3. dp: parameters of each block (what tp leaves of them) are shared out on "dp_shard", with copies on "dp_replicate".
//
// The outermost fully_shard is the caller's (a Trainer's, of strategy "fsdp"). Axes of one rank are not there, and nothing is
// done for them. The mesh is one of cohort::ParallelDims. loss_of() shares out positions on "cp".
#pragma once

#include <cohort/dtensor/api/distribute_module.h>
#include <cohort/dtensor/api/dtensor.h>
#include <cohort/models/gpt.h>
#include <cohort/parallel/activation/activation_checkpoint.h>
#include <cohort/parallel/context/context_parallel.h>
#include <cohort/parallel/context/sequence_layout.h>
#include <cohort/parallel/dims/parallel_dims.h>
#include <cohort/parallel/fsdp/fully_shard.h>
#include <torch/nn/functional/loss.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace gpt {

using cohort::models::GPT;
using cohort::models::GPTBlockImpl;

// As Megatron: of each pair of maps the first one's columns are shared out and the second one's rows, so that ranks meet once per
// pair. Rows of c_attn are those of q, k and v, one below the other; each is shared out by itself.
inline void share_layer(const std::string& name, torch::nn::Module& layer, const cohort::DeviceMesh& tp) {
  using cohort::Shard, cohort::StridedShard;
  const auto has_name = [&](const std::string& end) { return name == end || name.ends_with("." + end); };
  const auto cut = [&](const cohort::Placement& weight, const std::optional<cohort::Placement>& bias) {
    if (cohort::is_dtensor(layer.named_parameters(/*recurse=*/false)["weight"])) return;  // lm_head's may be wte's
    cohort::distribute_parameters(layer, tp, {{"weight", {weight}}});
    if (bias && layer.named_parameters(/*recurse=*/false).contains("bias")) {
      cohort::distribute_parameters(layer, tp, {{"bias", {*bias}}});
    }
  };
  if (has_name("attn.c_attn")) cut(StridedShard(0, 3), StridedShard(0, 3));
  if (has_name("mlp.c_fc")) cut(Shard(0), Shard(0));
  if (has_name("c_proj")) cut(Shard(1), {});
  if (has_name("wte") || has_name("lm_head")) cut(Shard(0), {});
}

inline void checkpoint_blocks(GPT& net, int64_t every) {
  cohort::apply_activation_checkpointing<GPTBlockImpl>(
      *net->transformer->h, [every](size_t layer) { return static_cast<int64_t>(layer) % every == 0; });
}

// Every block by itself, so that ranks that share no memory gather one at a time.
inline void shard_blocks(GPT& net, const cohort::fsdp::Options& options) {
  torch::nn::Sequential blocks;
  for (auto& block : *net->transformer->h) {
    if (const auto checkpointed =
            std::dynamic_pointer_cast<cohort::ActivationCheckpointImpl<GPTBlockImpl>>(block.ptr())) {
      blocks->push_back(cohort::fully_shard(checkpointed, options));
    } else {
      blocks->push_back(cohort::fully_shard(block.ptr<GPTBlockImpl>(), options));
    }
  }
  net->transformer->h = net->transformer->replace_module("h", blocks);
}

struct ParallelPlan {
  std::optional<cohort::DeviceMesh> mesh;
  /// Every N-th block is computed again; 0: none.
  int64_t activation_checkpointing = 0;
  /// Of fully_shard. Without a mesh nothing is shared out on dp.
  cohort::fsdp::Options fsdp = {};
};

// Collective. All ranks must have made the same model.
inline void parallelize(GPT& net, const ParallelPlan& plan) {
  const auto tp = plan.mesh ? cohort::axis_of(*plan.mesh, "tp") : std::nullopt;
  if (tp) cohort::distribute_module(*net, *tp, share_layer);
  if (plan.activation_checkpointing > 0) checkpoint_blocks(net, plan.activation_checkpointing);
  if (plan.fsdp.mesh) shard_blocks(net, plan.fsdp);
  // Of what is here now the stages of a pipeline, on axis "pp", would be cut.
}

// The mean over all tokens; with an axis "cp" over this rank's positions, of which attention sees the others'.
inline at::Tensor loss_of(cohort::models::GPTImpl& net, at::Tensor tokens, at::Tensor targets,
                          const std::optional<cohort::DeviceMesh>& mesh) {
  const auto cp = mesh ? cohort::axis_of(*mesh, "cp") : std::nullopt;
  std::optional<cohort::ContextParallel> scope;
  if (cp) {
    const auto own_part = [&](const at::Tensor& whole, int64_t dim) {
      return cohort::shard_sequence(whole, dim, cohort::SequenceLayout::kHeadTail, cp->group());
    };
    net.transformer->positions = own_part(at::arange(tokens.size(1), tokens.device()), 0);
    tokens = own_part(tokens, 1);
    targets = own_part(targets, 1);
    scope.emplace(*cp);
  }
  const auto logits = net.forward(tokens);
  return torch::nn::functional::cross_entropy(logits.flatten(0, 1), targets.flatten());
}

// Of a loss that ranks of a tp axis have together: the number that all of them know, through which gradients flow back.
inline at::Tensor whole(const at::Tensor& tensor) {
  return cohort::is_dtensor(tensor) ? cohort::DTensor(tensor).full_tensor() : tensor;
}

}  // namespace gpt
