/// A small GPT trained on ranks that share it as `dims` say (examples/gpt/parallelize.h), or by one process.
#pragma once

#include <ATen/ATen.h>
#include <torch/optim/adamw.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/group/process_group.h"
#include "cohort/models/gpt.h"
#include "cohort/parallel/context/context_parallel.h"
#include "cohort/parallel/dims/parallel_dims.h"
#include "cohort/parallel/fsdp/fully_shard.h"
#include "cohort/parallel/optim/clip_grad.h"
#include "cohort/parallel/optim/fused_optimizers.h"
#include "examples/gpt/parallelize.h"

namespace cohort::test {

inline constexpr int64_t kWords = 41, kTime = 8, kHeads = 24;

struct SmallGptOptions {
  bool tie_weights = false;
  int64_t num_layers = 2;
};

inline models::GPT small_gpt(const SmallGptOptions& options = {}) {
  at::manual_seed(3);
  return models::GPT(models::GPTOptions{.block_size = 8,
                                        .vocab_size = kWords,
                                        .n_layer = options.num_layers,
                                        .n_head = kHeads,
                                        .n_embd = 2 * kHeads,
                                        .tie_weights = options.tie_weights});
}

inline at::Tensor batch_of_step(int64_t step, int64_t rows) {
  return (at::arange(rows * (kTime + 1)).mul_(7).add_(step * 5) + at::arange(rows).repeat_interleave(kTime + 1))
      .remainder_(kWords)
      .view({rows, kTime + 1});
}

inline at::Tensor loss_of(const at::Tensor& logits, const at::Tensor& targets) {
  return at::cross_entropy_loss(logits.flatten(0, 1), targets.flatten());
}

/// A model on its way.
struct GptRun {
  models::GPT net{nullptr};
  /// What state dicts are made of.
  std::shared_ptr<torch::nn::Module> module;
  std::function<at::Tensor(const at::Tensor&)> forward;
  std::shared_ptr<gpt::Pipeline> pipeline;  ///< instead of `net` and `forward`
  std::unique_ptr<optim::AdamW> optimizer;
  parallel::DataShard part;
  Group data_group;  ///< null: all data, and all positions, are this rank's
  Group context_group;
  int64_t step = 0;

  struct Numbers {
    double loss, norm;
  };
  /// Of all ranks' rows together.
  Numbers train_step(int64_t rows) {
    const auto all = batch_of_step(step++, rows);
    const auto own = all.narrow(0, part.rank * (rows / part.num_replicas), rows / part.num_replicas);
    const auto tokens = own.narrow(1, 0, kTime).clone(), targets = own.narrow(1, 1, kTime).clone();
    std::optional<ContextParallel> scope;
    if (context_group) {
      auto& positions = pipeline ? pipeline->stages.front()->positions : net->transformer->positions;
      positions = at::arange(kTime);
      scope.emplace(context_group,
                    ContextParallelOptions{.buffers = {tokens, targets, positions}, .buffer_seq_dims = {1, 1, 0}});
    }
    optimizer->zero_grad();
    auto mean = pass(tokens, targets);
    scope.reset();
    const auto norm = clip(optimizer->param_groups()[0].params(), 0.5);
    optimizer->step();
    if (data_group) all_reduce(mean, {.op = ReduceOp::AVG, .group = data_group});
    return {mean.item<double>(), norm.item<double>()};
  }

 private:
  /// Forward and backward.
  at::Tensor pass(const at::Tensor& tokens, const at::Tensor& targets) {
    if (pipeline) {
      std::vector<at::Tensor> losses;
      pipeline->schedule->step({tokens}, {.target = targets, .losses = &losses, .return_outputs = false});
      return pipeline->schedule->mean_loss(losses);
    }
    const auto loss = gpt::whole(loss_of(forward(tokens), targets));
    loss.backward();
    return loss.detach().clone();
  }
  at::Tensor clip(const std::vector<at::Tensor>& parameters, double max_norm) {
    if (pipeline) return pipeline->schedule->clip_grad_norm_(parameters, max_norm);
    return nn::utils::clip_grad_norm_(parameters, max_norm);
  }
};

inline std::unique_ptr<optim::AdamW> make_adamw(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> each;  // tied ones once
  for (const auto& parameter : parameters) {
    const auto is_it = [&](const at::Tensor& other) { return other.is_same(parameter); };
    if (std::none_of(each.begin(), each.end(), is_it)) each.push_back(parameter);
  }
  // Keys' biases have a gradient of 0 but for rounding, of which Adam would make whole steps.
  return std::make_unique<optim::AdamW>(each, torch::optim::AdamWOptions(1e-2).weight_decay(0.1).eps(1e-4));
}

inline GptRun alone(const SmallGptOptions& model = {}) {
  GptRun run;
  run.net = small_gpt(model);
  run.module = run.net.ptr();
  run.forward = [net = run.net](const at::Tensor& tokens) mutable { return net(tokens); };
  run.optimizer = make_adamw(run.net->parameters());
  return run;
}

struct TogetherOptions {
  bool one_memory = true;
  int64_t activation_checkpointing = 0;
  SmallGptOptions model = {};
  std::string pp_schedule = "1F1B";
  int pp_microbatches = 2;
};

inline GptRun together(const parallel::ParallelDims& dims, const TogetherOptions& options = {}) {
  const auto mesh = dims.build_mesh("cpu");
  GptRun run;
  run.net = small_gpt(options.model);
  fsdp::Options fsdp{.mesh = parallel::data_parallel_mesh(mesh)};
  fsdp.one_memory = options.one_memory;
  auto pipeline = gpt::parallelize(run.net, {.mesh = mesh,
                                             .activation_checkpointing = options.activation_checkpointing,
                                             .fsdp = fsdp,
                                             .pp_schedule = options.pp_schedule,
                                             .pp_microbatches = options.pp_microbatches});
  run.part = parallel::data_shard_of(mesh);
  if (const auto line = parallel::axis_of(mesh, "dp_cp")) run.data_group = line->group();
  if (const auto line = parallel::axis_of(mesh, "cp")) run.context_group = line->group();
  if (pipeline) {
    run.module = pipeline->model;
    run.optimizer = make_adamw(pipeline->parameters);
    run.pipeline = std::make_shared<gpt::Pipeline>(std::move(*pipeline));
  } else if (fsdp.mesh) {
    auto model = fully_shard(run.net, fsdp);
    run.module = model.ptr();
    run.forward = [model](const at::Tensor& tokens) mutable { return model(tokens); };
    run.optimizer = make_adamw(model->parameters());
  } else {
    run.module = run.net.ptr();
    run.forward = [net = run.net](const at::Tensor& tokens) mutable { return net(tokens); };
    run.optimizer = make_adamw(run.net->parameters());
  }
  return run;
}

inline std::string text_of(const parallel::ParallelDims& dims) {
  return "dp_replicate " + std::to_string(dims.dp_replicate) + ", dp_shard " + std::to_string(dims.dp_shard) + ", tp " +
         std::to_string(dims.tp) + ", cp " + std::to_string(dims.cp) + ", pp " + std::to_string(dims.pp);
}

/// All ways in which so many ranks can share the model, and its sequences.
inline std::vector<parallel::ParallelDims> all_dims(int64_t world_size) {
  std::vector<parallel::ParallelDims> result;
  for (int64_t copies = 1; copies <= world_size; ++copies) {
    for (int64_t shards = 1; copies * shards <= world_size; ++shards) {
      for (const int64_t cp : {1, 2, 4}) {
        const int64_t tp = world_size / (copies * shards * cp);
        if (copies * shards * cp * tp != world_size || kHeads % tp != 0) continue;
        result.push_back({.dp_replicate = copies, .dp_shard = shards, .tp = tp, .cp = cp});
      }
    }
  }
  return result;
}

/// The same with a pipeline of up to four stages.
inline std::vector<parallel::ParallelDims> all_pipelines(int64_t world_size) {
  std::vector<parallel::ParallelDims> result;
  for (const int64_t pp : {2, 3, 4}) {
    if (world_size % pp != 0) continue;
    for (auto dims : all_dims(world_size / pp)) {
      dims.pp = pp;
      result.push_back(dims);
    }
  }
  return result;
}

/// A number of rows that each of its data-parallel ranks has as many of.
inline int64_t rows_for(const parallel::ParallelDims& dims) { return 24 % dims.dp_size() == 0 ? 24 : 35; }

}  // namespace cohort::test
