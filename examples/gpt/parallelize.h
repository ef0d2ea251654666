// Parallelizes a GPT. Applies these steps to the model, in this order, before an optimizer is built on its parameters.
//
//   1. tp: each layer's weights become DTensors, sharded on the ranks of axis "tp".
//   2. Activation checkpointing: backward recomputes blocks instead of keeping their activations.
//   3. dp: parameters of each block (their tp shards) are sharded on "dp_shard", and replicated on "dp_replicate".
//   4. pp: blocks, with the embeddings before them and the head after them, become stages on the ranks of axis "pp".
//
// Without a pipeline, the caller (a Trainer with strategy "fsdp") applies the outermost fully_shard. Axes of one rank do not
// exist, and their steps do nothing. The mesh is one of cohort::parallel::ParallelDims. loss_of() shards positions on "cp".
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

// As in Megatron: of each pair of maps, shards the columns of the first and the rows of the second, so that ranks communicate
// once per pair.
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

// Shards every block separately, so that ranks without shared memory gather one block at a time.
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
  /// Recomputes every N-th block in backward. 0 means none.
  int64_t activation_checkpointing = 0;
  /// Options of fully_shard. Without a mesh, nothing is sharded on dp.
  cohort::fsdp::Options fsdp = {};
  /// For an axis "pp": a schedule of cohort::pipeline::pipeline_schedule_names(), the number of stages per rank (0 means one with
  /// 1F1B and GPipe, else two), and the number of microbatches.
  std::string pp_schedule = "1F1B";
  int pp_stages_per_rank = 0;
  int pp_microbatches = 4;
};

// The stages of a model on this rank.
struct Pipeline {
  std::vector<GPTStage> stages;
  std::shared_ptr<torch::nn::Module> model;  ///< the stages after fully_shard
  std::vector<at::Tensor> parameters;        ///< for an optimizer
  std::unique_ptr<cohort::PipelineSchedule> schedule;
};

// Returns the full tensor of a loss, or of activations, sharded on a tp axis; gradients flow back through it.
inline at::Tensor whole(const at::Tensor& tensor) {
  return cohort::is_dtensor(tensor) ? cohort::DTensor(tensor).full_tensor() : tensor;
}

// Returns the mean over all tokens.
inline at::Tensor loss_of_logits(const at::Tensor& logits, const at::Tensor& targets) {
  return torch::nn::functional::cross_entropy(logits.flatten(0, 1), targets.flatten());
}

// The stages after fully_shard.
using Modules = std::vector<std::shared_ptr<torch::nn::Module>>;

// Stages of a tp axis send plain, replicated tensors to each other; only the logits stay sharded, for the loss.
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

// Returns the optimizer's version of a parameter of the stage.
inline at::Tensor as_trained(const torch::nn::Module& model, const at::Tensor& parameter) {
  for (const auto& each : cohort::fsdp::sharded_parameters(model)) {
    if (each.full.is_same(parameter)) return each.shard;
  }
  return parameter;
}

// Gives the last stage its own weight, which the schedule keeps equal to the first stage's.
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
    stages.push_back(
        in_pipeline(stage, model, cohort::parallel::axis_of(*plan.mesh, "tp"), index, num_stages, pp.group()));
    for (const auto& parameter : model->parameters()) pipeline.parameters.push_back(parameter);
    const auto tie = [&](const at::Tensor& weight, int other) {
      options.tied_parameters.push_back({as_trained(*model, weight), index, other});
    };
    if (is_tied && stage->has_embeddings()) tie(stage->wte->weight, num_stages - 1);
    if (is_tied && stage->has_head()) tie(stage->lm_head->weight, 0);
    modules.push_back(model.ptr());
    pipeline.stages.push_back(stage);
  };
  for (const int index : cohort::pipeline::pipeline_stages_of_rank(plan.pp_schedule, static_cast<int>(pp.local_rank()),
                                                                   num_ranks, num_stages, plan.pp_microbatches)) {
    const auto& stage = parts.at(index);
    plan.fsdp.mesh ? add(stage, cohort::fully_shard(stage, plan.fsdp), index) : add(stage, stage, index);
  }
  pipeline.model = modules.size() == 1 ? modules.front() : cohort::pipeline::StageList(modules).ptr();
  pipeline.schedule =
      std::make_unique<cohort::PipelineSchedule>(plan.pp_schedule, stages, plan.pp_microbatches, options);
  return pipeline;
}

// Parallelizes a model that all ranks have made alike. With an axis "pp" the model is taken apart, and `net` is then null.
// Collective.
inline std::optional<Pipeline> parallelize(GPT& net, const Strategies& plan) {
  const auto axis = [&](const char* name) {
    return plan.mesh ? cohort::parallel::axis_of(*plan.mesh, name) : std::nullopt;
  };
  if (const auto tp = axis("tp")) cohort::parallelize_module(*net, *tp, tensor_parallel_plan(net));
  if (plan.activation_checkpointing > 0) checkpoint_blocks(net, plan.activation_checkpointing);
  if (plan.fsdp.mesh) shard_blocks(net, plan.fsdp);
  const auto pp = axis("pp");
  if (!pp) return std::nullopt;
  Pipeline pipeline = make_pipeline(net, plan, *pp);
  net = nullptr;
  return pipeline;
}

// With an axis "cp": reduces tokens and targets to this rank's positions, stores them in `positions`, and lets attention see the
// other ranks' positions while the result lives.
inline std::unique_ptr<cohort::ContextParallel> share_positions(const std::optional<cohort::DeviceMesh>& mesh,
                                                                at::Tensor& tokens, at::Tensor& targets,
                                                                at::Tensor& positions) {
  const auto cp = mesh ? cohort::parallel::axis_of(*mesh, "cp") : std::nullopt;
  if (!cp) return nullptr;
  const auto own_shard = [&](const at::Tensor& all, int64_t dim) {
    return cohort::parallel::shard_sequence(all, dim, cohort::parallel::SequenceLayout::kHeadTail, cp->group());
  };
  positions = own_shard(at::arange(tokens.size(1), tokens.device()), 0);
  tokens = own_shard(tokens, 1);
  targets = own_shard(targets, 1);
  return std::make_unique<cohort::ContextParallel>(*cp);
}

// Returns the mean over all tokens; with an axis "cp" over this rank's positions.
inline at::Tensor loss_of(cohort::models::GPTImpl& net, at::Tensor tokens, at::Tensor targets,
                          const std::optional<cohort::DeviceMesh>& mesh) {
  const auto scope = share_positions(mesh, tokens, targets, net.transformer->positions);
  return loss_of_logits(net.forward(tokens), targets);
}

}  // namespace gpt
