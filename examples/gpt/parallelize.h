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
#include <cohort/parallel/fsdp/full_tensor.h>
#include <cohort/parallel/fsdp/fully_shard.h>
#include <cohort/parallel/pipeline/pipeline_schedule.h>
#include <cohort/parallel/pipeline/stage_list.h>
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
  /// With an axis "pp": one of cohort::pipeline_schedule_names(), how many stages each rank has (0: one with 1F1B and GPipe, else
  /// two), and in how many parts a batch goes through them.
  std::string pp_schedule = "1F1B";
  int pp_stages_per_rank = 0;
  int pp_microbatches = 4;
};

// What this rank has of a model in stages.
struct Pipeline {
  std::vector<GPTStage> stages;
  std::shared_ptr<torch::nn::Module> model;  ///< the stages, as fully_shard has left them
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

// Each of the stages, as fully_shard has left it.
using Modules = std::vector<std::shared_ptr<torch::nn::Module>>;

// Stages of a tp axis hand plain tensors on, which all of its ranks have; only the logits stay in parts, for the loss.
template <class Model>
cohort::PipelineStage in_pipeline(const GPTStage& stage, Model model, const std::optional<cohort::DeviceMesh>& tp,
                                  int index, int num_stages, const cohort::Group& group) {
  const auto forward = [model, stage, tp](const cohort::TensorList& inputs) mutable -> cohort::TensorList {
    at::Tensor x = inputs.front();
    if (tp && !stage->has_embeddings()) x = cohort::DTensor::from_local(x, *tp, {cohort::Replicate()});
    const at::Tensor y = model->forward(x);
    return {stage->has_head() ? y : whole(y)};
  };
  return {model.ptr(), forward, index, num_stages, {.group = group}};
}

// What an optimizer has instead of a parameter of the stage.
inline at::Tensor as_trained(const torch::nn::Module& model, const at::Tensor& parameter) {
  for (const auto& each : cohort::fsdp::sharded_parameters(model)) {
    if (each.full.is_same(parameter)) return each.shard;
  }
  return parameter;
}

// The last stage has a weight of its own, which the schedule keeps alike.
inline void untie(GPT& net) {
  const at::Tensor weight = net->transformer->wte->weight.detach().clone().requires_grad_(true);
  net->lm_head = net->replace_module("lm_head", cohort::models::GPTHead(weight));
}

inline int stages_per_rank(const Strategies& plan) {
  if (plan.pp_stages_per_rank > 0) return plan.pp_stages_per_rank;
  return plan.pp_schedule == "1F1B" || plan.pp_schedule == "GPipe" ? 1 : 2;
}

inline Pipeline make_pipeline(GPT& net, const Strategies& plan, const cohort::DeviceMesh& pp) {
  const int num_ranks = static_cast<int>(pp.size()), num_stages = num_ranks * stages_per_rank(plan);
  const bool is_tied = net->options().tie_weights;
  if (is_tied) untie(net);
  const auto parts = cohort::models::split_gpt(net, num_stages);
  Pipeline pipeline;
  Modules modules;
  std::vector<cohort::PipelineStage> stages;
  cohort::PipelineOptions options{.loss_fn = cohort::loss_of([](const at::Tensor& logits, const at::Tensor& targets) {
                                    return whole(loss_of_logits(logits, targets));
                                  })};
  const auto add = [&](const GPTStage& stage, auto model, int index) {
    stages.push_back(in_pipeline(stage, model, cohort::axis_of(*plan.mesh, "tp"), index, num_stages, pp.group()));
    for (const auto& parameter : model->parameters()) pipeline.parameters.push_back(parameter);
    const auto tie = [&](const at::Tensor& weight, int other) {
      options.tied_parameters.push_back({as_trained(*model, weight), index, other});
    };
    if (is_tied && stage->has_embeddings()) tie(stage->wte->weight, num_stages - 1);
    if (is_tied && stage->has_head()) tie(stage->lm_head->weight, 0);
    modules.push_back(model.ptr());
    pipeline.stages.push_back(stage);
  };
  for (const int index : cohort::pipeline_stages_of_rank(plan.pp_schedule, static_cast<int>(pp.local_rank()), num_ranks,
                                                         num_stages, plan.pp_microbatches)) {
    const auto& stage = parts.at(index);
    plan.fsdp.mesh ? add(stage, cohort::fully_shard(stage, plan.fsdp), index) : add(stage, stage, index);
  }
  pipeline.model = modules.size() == 1 ? modules.front() : cohort::StageList(modules).ptr();
  pipeline.schedule =
      std::make_unique<cohort::PipelineSchedule>(plan.pp_schedule, stages, plan.pp_microbatches, options);
  return pipeline;
}

// Collective. All ranks must have made the same model. With an axis "pp" the model is taken apart, and `net` is null then.
inline std::optional<Pipeline> parallelize(GPT& net, const Strategies& plan) {
  const auto axis = [&](const char* name) { return plan.mesh ? cohort::axis_of(*plan.mesh, name) : std::nullopt; };
  if (const auto tp = axis("tp")) cohort::parallelize_module(*net, *tp, tensor_parallel_plan(net));
  if (plan.activation_checkpointing > 0) checkpoint_blocks(net, plan.activation_checkpointing);
  if (plan.fsdp.mesh) shard_blocks(net, plan.fsdp);
  const auto pp = axis("pp");
  if (!pp) return std::nullopt;
  Pipeline pipeline = make_pipeline(net, plan, *pp);
  net = nullptr;
  return pipeline;
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
