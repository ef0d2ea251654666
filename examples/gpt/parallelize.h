// How ranks share a GPT: what is done to the model, in this order, before an optimizer is built on its parameters.
//
//   1. tp: each layer's weights are DTensors, in parts on the ranks of axis "tp".
//   2. blocks that backward computes again, instead of keeping what lies between.
//   3. dp: parameters of each block (what tp leaves of them) are shared out on "dp_shard", with copies on "dp_replicate".
//   4. pp: blocks, with the embeddings before them and the head behind them, are stages on the ranks of axis "pp".
//
// Without a pipeline the outermost fully_shard is the caller's (a Trainer's, of strategy "fsdp"). Axes of one rank are not there,
// and nothing is done for them. The mesh is one of cohort::ParallelDims. loss_of() shares out positions on "cp".
#pragma once

#include <cohort/dtensor/api/dtensor.h>
#include <cohort/models/gpt.h>
#include <cohort/models/gpt_stage.h>
#include <cohort/parallel/activation/activation_checkpoint.h>
#include <cohort/parallel/context/context_parallel.h>
#include <cohort/parallel/context/sequence_layout.h>
#include <cohort/parallel/dims/parallel_dims.h>
#include <cohort/parallel/fsdp/fully_shard.h>
#include <cohort/parallel/pipeline/pipeline_schedule.h>
#include <cohort/parallel/tensor/parallelize_module.h>
#include <torch/nn/functional/loss.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gpt {

using cohort::models::GPT;
using cohort::models::GPTBlockImpl;

using cohort::models::GPTStage;

// As Megatron: of each pair of maps the first one's columns are shared out and the second one's rows, so that ranks meet once per
// pair.
inline cohort::ParallelPlan tensor_parallel_plan(const GPT& net) {
  return {{"transformer.wte", cohort::RowwiseParallel()},
          {"transformer.h.*.attn.c_attn",
           cohort::ColwiseParallel{.num_parts = 3, .num_heads = net->options().n_head}},  // query, key and value
          {"transformer.h.*.mlp.c_fc", cohort::ColwiseParallel()},
          {"transformer.h.*.*.c_proj", cohort::RowwiseParallel()},
          {"lm_head", cohort::ColwiseParallel()}};
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

struct Strategies {
  std::optional<cohort::DeviceMesh> mesh;
  /// Every N-th block is computed again; 0: none.
  int64_t activation_checkpointing = 0;
  /// Of fully_shard. Without a mesh nothing is shared out on dp.
  cohort::fsdp::Options fsdp = {};
  /// With an axis "pp": one whose ranks have one stage each, and in how many parts a batch goes through it.
  std::string pp_schedule = "1F1B";
  int pp_microbatches = 4;
};

// What this rank has of a model in stages.
struct Pipeline {
  GPTStage stage{nullptr};
  std::shared_ptr<torch::nn::Module> model;  ///< the stage, as fully_shard has left it
  std::vector<at::Tensor> parameters;        ///< for an optimizer
  std::unique_ptr<cohort::PipelineSchedule> schedule;
};

// Of a loss, or of activations, that ranks of a tp axis have together: what all of them know, through which gradients flow back.
inline at::Tensor whole(const at::Tensor& tensor) {
  return cohort::is_dtensor(tensor) ? cohort::DTensor(tensor).full_tensor() : tensor;
}

// The mean over all tokens.
inline at::Tensor loss_of_logits(const at::Tensor& logits, const at::Tensor& targets) {
  return torch::nn::functional::cross_entropy(logits.flatten(0, 1), targets.flatten());
}

// Stages of a tp axis hand plain tensors on, which all of its ranks have; only the logits stay in parts, for the loss.
template <class Model>
Pipeline make_pipeline(const GPTStage& stage, Model model, const Strategies& plan, const cohort::DeviceMesh& pp) {
  const auto forward = [model, stage, tp = cohort::axis_of(*plan.mesh, "tp")](
                           const cohort::TensorList& inputs) mutable -> cohort::TensorList {
    at::Tensor x = inputs.front();
    if (tp && !stage->has_embeddings()) x = cohort::DTensor::from_local(x, *tp, {cohort::Replicate()});
    const at::Tensor y = model->forward(x);
    return {stage->has_head() ? y : whole(y)};
  };
  const auto loss = [](const at::Tensor& logits, const at::Tensor& targets) {
    return whole(loss_of_logits(logits, targets));
  };
  const cohort::PipelineStage in_pipeline(model.ptr(), forward, static_cast<int>(pp.local_rank()),
                                          static_cast<int>(pp.size()), {.group = pp.group()});
  return {.stage = stage,
          .model = model.ptr(),
          .parameters = model->parameters(),
          .schedule = std::make_unique<cohort::PipelineSchedule>(
              plan.pp_schedule, std::vector{in_pipeline}, plan.pp_microbatches,
              cohort::PipelineOptions{.loss_fn = cohort::loss_of(loss)})};
}

// Collective. All ranks must have made the same model. With an axis "pp" the model is taken apart, and `net` is null then.
inline std::optional<Pipeline> parallelize(GPT& net, const Strategies& plan) {
  const auto axis = [&](const char* name) { return plan.mesh ? cohort::axis_of(*plan.mesh, name) : std::nullopt; };
  if (const auto tp = axis("tp")) cohort::parallelize_module(*net, *tp, tensor_parallel_plan(net));
  if (plan.activation_checkpointing > 0) checkpoint_blocks(net, plan.activation_checkpointing);
  if (plan.fsdp.mesh) shard_blocks(net, plan.fsdp);
  const auto pp = axis("pp");
  if (!pp) return std::nullopt;
  const GPTStage stage = cohort::models::split_gpt(net, static_cast<int>(pp->size())).at(pp->local_rank());
  net = nullptr;
  if (!plan.fsdp.mesh) return make_pipeline(stage, stage, plan, *pp);
  return make_pipeline(stage, cohort::fully_shard(stage, plan.fsdp), plan, *pp);
}

// With an axis "cp": tokens and targets become this rank's positions of them, of which `positions` says where they stand, and
// attention sees the others' while the result lives.
inline std::unique_ptr<cohort::ContextParallel> share_positions(const std::optional<cohort::DeviceMesh>& mesh,
                                                                at::Tensor& tokens, at::Tensor& targets,
                                                                at::Tensor& positions) {
  const auto cp = mesh ? cohort::axis_of(*mesh, "cp") : std::nullopt;
  if (!cp) return nullptr;
  const auto own_part = [&](const at::Tensor& all, int64_t dim) {
    return cohort::shard_sequence(all, dim, cohort::SequenceLayout::kHeadTail, cp->group());
  };
  positions = own_part(at::arange(tokens.size(1), tokens.device()), 0);
  tokens = own_part(tokens, 1);
  targets = own_part(targets, 1);
  return std::make_unique<cohort::ContextParallel>(*cp);
}

// The mean over all tokens; with an axis "cp" over this rank's positions.
inline at::Tensor loss_of(cohort::models::GPTImpl& net, at::Tensor tokens, at::Tensor targets,
                          const std::optional<cohort::DeviceMesh>& mesh) {
  const auto scope = share_positions(mesh, tokens, targets, net.transformer->positions);
  return loss_of_logits(net.forward(tokens), targets);
}

}  // namespace gpt
