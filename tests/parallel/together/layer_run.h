/// A small net of layers that ranks compute together (parallel_layers.h), trained on ranks that share it as `dims` say, or by one
/// process. No size divides by the number of ranks.
#pragma once

#include <ATen/ATen.h>
#include <torch/nn/modules/normalization.h>
#include <torch/optim/adamw.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/group/process_group.h"
#include "cohort/comm/group/subgroups.h"
#include "cohort/parallel/dims/parallel_dims.h"
#include "cohort/parallel/fsdp/fully_shard.h"
#include "cohort/parallel/optim/clip_grad.h"
#include "cohort/parallel/tensor/parallel_layers.h"
#include "cohort/parallel/tensor/regions.h"
#include "cohort/parallel/tensor/vocab_parallel_cross_entropy.h"

namespace cohort::test {

inline constexpr int64_t kLayerWords = 21, kLayerWidth = 6, kLayerHidden = 9, kLayerTime = 8;

struct LayerBlockImpl : torch::nn::Module {
  LayerBlockImpl(const Group& tp, bool shares_positions)
      : norm(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kLayerWidth})))),
        up(register_module("up",
                           parallel::ColumnParallelLinear(
                               kLayerWidth, kLayerHidden,
                               parallel::ColumnParallelOptions{.group = tp, .sequence_parallel = shares_positions}))),
        down(register_module("down",
                             parallel::RowParallelLinear(
                                 kLayerHidden, kLayerWidth,
                                 parallel::RowParallelOptions{.group = tp, .sequence_parallel = shares_positions}))) {}
  at::Tensor forward(const at::Tensor& x) { return x + down(at::gelu(up(norm(x)))); }

  torch::nn::LayerNorm norm;
  parallel::ColumnParallelLinear up;
  parallel::RowParallelLinear down;
};
TORCH_MODULE(LayerBlock);

struct LayerNetOptions {
  Group tp;
  bool shares_positions = false;
  /// The block by itself, too; nothing: it is not sharded.
  std::optional<fsdp::Options> fsdp = {};
};

struct LayerNetImpl : torch::nn::Module {
  explicit LayerNetImpl(const LayerNetOptions& options)
      : shares_positions(options.shares_positions),
        words(register_module(
            "words", parallel::VocabParallelEmbedding(
                         kLayerWords, kLayerWidth,
                         parallel::VocabParallelOptions{.group = options.tp, .sequence_parallel = shares_positions}))),
        block(options.tp, shares_positions),
        norm(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kLayerWidth})))),
        head(register_module(
            "head", parallel::ColumnParallelLinear(
                        kLayerWidth, kLayerWords,
                        parallel::ColumnParallelOptions{.group = options.tp, .sequence_parallel = shares_positions}))) {
    if (options.fsdp) {
      sharded_block = fully_shard(block, *options.fsdp);
      register_module("block", sharded_block);
    } else {
      register_module("block", block);
    }
  }
  at::Tensor forward(const at::Tensor& tokens) {
    const auto x = words(tokens);
    return head(norm(sharded_block ? sharded_block(x) : block(x)));
  }
  /// What sees a rank's positions alone.
  std::vector<at::Tensor> norms() const { return {norm->weight, norm->bias, block->norm->weight, block->norm->bias}; }

  bool shares_positions;
  parallel::VocabParallelEmbedding words;
  LayerBlock block;
  FullySharded<LayerBlockImpl> sharded_block{nullptr};
  torch::nn::LayerNorm norm;
  parallel::ColumnParallelLinear head;
};
TORCH_MODULE(LayerNet);

struct LayerRun {
  LayerNet net{nullptr};
  std::shared_ptr<torch::nn::Module> module;  ///< what state dicts are made of
  FullySharded<LayerNetImpl> model{nullptr};  ///< null: not sharded
  std::unique_ptr<torch::optim::AdamW> optimizer;
  LayerNetOptions options;
  parallel::DataShard part;
  Group data_group;  ///< null: all rows are this rank's
  int64_t step = 0;

  struct Numbers {
    double loss, norm;
  };
  /// Of all ranks' rows together.
  Numbers train_step() {
    constexpr int64_t kRows = 4;
    const auto all = (at::arange(kRows * (kLayerTime + 1)) * 7 + step++ * 5).remainder(kLayerWords);
    const auto rows = kRows / part.num_replicas;
    const auto own = all.view({kRows, kLayerTime + 1}).narrow(0, part.rank * rows, rows);
    const auto tokens = own.narrow(1, 0, kLayerTime), targets = own.narrow(1, 1, kLayerTime).flatten();
    optimizer->zero_grad();
    const auto logits = model ? model(tokens) : net(tokens);
    auto loss = parallel::vocab_parallel_cross_entropy(logits.flatten(0, 1), targets,
                                                       {.group = options.tp, .num_classes = kLayerWords});
    loss.backward();
    if (options.shares_positions) parallel::reduce_sequence_gradients(net->norms(), options.tp);
    const auto norm = nn::utils::clip_grad_norm_(optimizer->param_groups()[0].params(), 0.5);
    optimizer->step();
    loss = loss.detach().clone();
    if (data_group) all_reduce(loss, {.op = ReduceOp::AVG, .group = data_group});
    return {loss.item<double>(), norm.item<double>()};
  }
};

/// A group of this rank alone. Collective.
inline Group group_of_one() {
  Group own;
  for (int rank = 0; rank < get_world_size(); ++rank) {
    const auto group = new_group({rank});
    if (rank == get_rank()) own = group;
  }
  return own;
}

struct LayerRunOptions {
  bool shares_positions = false;
  bool one_memory = true;
};

inline LayerRun layer_run(const LayerNetOptions& options, const std::optional<fsdp::Options>& fsdp = {}) {
  LayerRun run;
  run.options = options;
  at::manual_seed(5);
  run.net = LayerNet(options);
  run.module = run.net.ptr();
  auto parameters = run.net->parameters();
  if (fsdp) {
    run.model = fully_shard(run.net, *fsdp);
    run.module = run.model.ptr();
    parameters = run.model->parameters();
  }
  run.optimizer =
      std::make_unique<torch::optim::AdamW>(parameters, torch::optim::AdamWOptions(1e-2).weight_decay(0.1).eps(1e-4));
  return run;
}

/// `alone`: group_of_one().
inline LayerRun layers_alone(const Group& alone) { return layer_run({.tp = alone}); }

inline LayerRun layers_together(const parallel::ParallelDims& dims, const Group& alone,
                                const LayerRunOptions& options = {}) {
  const auto mesh = dims.build_mesh("cpu");
  const auto tp = parallel::axis_of(mesh, "tp");
  std::optional<fsdp::Options> fsdp;
  if (const auto data = parallel::data_parallel_mesh(mesh)) {
    fsdp.emplace(fsdp::Options{.mesh = data});
    fsdp->one_memory = options.one_memory;
  }
  auto run =
      layer_run({.tp = tp ? tp->group() : alone, .shares_positions = options.shares_positions, .fsdp = fsdp}, fsdp);
  run.part = parallel::data_shard_of(mesh);
  if (const auto line = parallel::axis_of(mesh, "dp")) run.data_group = line->group();
  return run;
}

}  // namespace cohort::test
