// The programs of docs/guide/tensor_parallel.md (tests/tools/guide_test.py compares them), run by two ranks.
#include <ATen/ATen.h>
#include <cohort/comm/collectives/collectives.h>
#include <cohort/dtensor/api/dtensor.h>
#include <cohort/dtensor/wrapper/comm_counts.h>
#include <cohort/models/gpt.h>
#include <cohort/parallel/dims/parallel_dims.h>
#include <cohort/parallel/optim/clip_grad.h>
#include <cohort/parallel/tensor/division.h>
#include <cohort/parallel/tensor/parallel_layers.h>
#include <cohort/parallel/tensor/parallelize_module.h>
#include <cohort/parallel/tensor/regions.h>
#include <cohort/parallel/tensor/rng_scope.h>
#include <cohort/parallel/tensor/vocab_parallel_cross_entropy.h>
#include <cohort/parallel/tensor/with_layouts.h>
#include <torch/nn/modules/normalization.h>
#include <torch/optim/adamw.h>

#include "guide.h"

namespace guide {
namespace {

void parallelize_gpt(const cohort::DeviceMesh& mesh) {
  at::manual_seed(1);
  using cohort::ColwiseParallel, cohort::RowwiseParallel, cohort::Replicate, cohort::Shard;
  cohort::models::GPT gpt(
      cohort::models::GPTOptions{.block_size = 8, .vocab_size = 50, .n_layer = 2, .n_head = 4, .n_embd = 16});
  cohort::parallelize_module(*gpt, mesh["tp"],
                             {{"transformer.wte", RowwiseParallel()},  // each rank has some words
                              {"transformer.h.*.attn.c_attn", ColwiseParallel{.num_parts = 3, .num_heads = 4}},
                              {"transformer.h.*.mlp.c_fc", ColwiseParallel()},
                              {"transformer.h.*.*.c_proj", RowwiseParallel()},
                              {"lm_head", ColwiseParallel()}});
  torch::optim::AdamW optimizer(gpt->parameters(), 1e-2);
  const auto tokens = at::arange(9).view({1, 9});  // the same on every rank of the group
  const auto inputs = tokens.narrow(1, 0, 8), targets = tokens.narrow(1, 1, 8).flatten();
  at::Tensor loss;
  for (int step = 0; step < 20; ++step) {
    loss = at::cross_entropy_loss(gpt(inputs).flatten(0, 1), targets);
    optimizer.zero_grad();
    loss.backward();
    cohort::nn::utils::clip_grad_norm_(gpt->parameters(), 1.0);
    optimizer.step();
  }
  TORCH_CHECK(cohort::DTensor(loss).full_tensor().item<double>() < 1);

  // Between the layers each rank now has only some positions.
  const cohort::DTensor own = cohort::distribute_tensor(inputs, mesh["tp"], {Shard(1)});
  const auto before = cohort::dtensor::comm_counts();
  const at::Tensor logits = gpt(own);
  TORCH_CHECK((cohort::dtensor::comm_counts() - before).all_reduce == 0);

  auto model =
      cohort::parallel::with_layouts(gpt, mesh["tp"],
                                     cohort::PrepareModuleInputOutput{.input_layouts = {Replicate()},
                                                                      .desired_input_layouts = {Shard(1)},
                                                                      .output_layouts = {Shard(-1)},
                                                                      .desired_output_layouts = {Replicate()}});
  const at::Tensor plain = model(inputs);  // all logits, on every rank
  TORCH_CHECK(at::allclose(plain, cohort::DTensor(logits).full_tensor()));
}

struct BlockImpl : torch::nn::Module {
  BlockImpl(int64_t width, int64_t num_heads, const cohort::Group& tp)
      : tp(tp),
        num_heads(cohort::parallel::divided(num_heads, "attention heads", tp)),
        norms{register_module("norm1", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}))),
              register_module("norm2", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})))},
        query(register_module("query", cohort::parallel::ColumnParallelLinear(width, width, of_shared_input(tp)))),
        key(register_module("key", cohort::parallel::ColumnParallelLinear(width, width, of_shared_input(tp)))),
        value(register_module("value", cohort::parallel::ColumnParallelLinear(width, width, of_shared_input(tp)))),
        out(register_module("out", cohort::parallel::RowParallelLinear(
                                       width, width, cohort::parallel::RowParallelOptions{.group = tp}))),
        up(register_module("up", cohort::parallel::ColumnParallelLinear(
                                     width, 4 * width, cohort::parallel::ColumnParallelOptions{.group = tp}))),
        down(register_module("down", cohort::parallel::RowParallelLinear(
                                         4 * width, width, cohort::parallel::RowParallelOptions{.group = tp}))) {}

  static cohort::parallel::ColumnParallelOptions of_shared_input(const cohort::Group& tp) {
    return {.group = tp, .copy_input = false};
  }

  at::Tensor forward(const at::Tensor& x) {
    const auto heads = [&](const at::Tensor& t) { return t.unflatten(-1, {num_heads, -1}).transpose(1, 2); };
    const auto y = cohort::parallel::copy_to_region(norms[0]->forward(x), tp);  // once for three layers
    const auto attended = at::scaled_dot_product_attention(heads(query(y)), heads(key(y)), heads(value(y)),
                                                           /*attn_mask=*/{}, /*dropout_p=*/0, /*is_causal=*/true);
    const auto z = x + out(attended.transpose(1, 2).flatten(2));
    return z + down(at::gelu(up(norms[1]->forward(z))));
  }

  cohort::Group tp;
  int64_t num_heads;  // of this rank
  std::vector<torch::nn::LayerNorm> norms;
  cohort::parallel::ColumnParallelLinear query, key, value;
  cohort::parallel::RowParallelLinear out;
  cohort::parallel::ColumnParallelLinear up;
  cohort::parallel::RowParallelLinear down;
};
TORCH_MODULE(Block);

struct ModelImpl : torch::nn::Module {
  explicit ModelImpl(const cohort::Group& tp)
      : embedding(register_module("embedding", cohort::parallel::VocabParallelEmbedding(
                                                   50, 16, cohort::parallel::VocabParallelOptions{.group = tp}))),
        block(register_module("block", Block(16, 4, tp))),
        head(register_module("head",
                             cohort::parallel::ColumnParallelLinear(
                                 16, 50, cohort::parallel::ColumnParallelOptions{.group = tp, .bias = false}))) {}

  /// [batch, positions] -> [batch, positions, this rank's words]
  at::Tensor forward(const at::Tensor& tokens) { return head(block(embedding(tokens))); }

  cohort::parallel::VocabParallelEmbedding embedding;
  Block block;
  cohort::parallel::ColumnParallelLinear head;
};
TORCH_MODULE(Model);

void train_parts(const cohort::Group& tp) {
  at::manual_seed(1);
  Model model(tp);
  torch::optim::AdamW optimizer(model->parameters(), 1e-2);
  at::Tensor loss;
  const auto tokens = at::arange(9).view({1, 9});  // the same on every rank of the group
  for (int step = 0; step < 20; ++step) {
    const auto logits = model(tokens.narrow(1, 0, 8)).flatten(0, 1);
    loss = cohort::parallel::vocab_parallel_cross_entropy(logits, tokens.narrow(1, 1, 8).flatten(), {.group = tp});
    optimizer.zero_grad();
    loss.backward();
    cohort::nn::utils::clip_grad_norm_(model->parameters(), 1.0);
    optimizer.step();
  }
  TORCH_CHECK(loss.item<double>() < 1);
}

void regions_by_hand(const cohort::Group& tp) {
  const auto x = at::ones({2, 4}), own_columns = at::ones({4, 3}), own_rows = at::ones({3, 4});
  const auto hidden = cohort::parallel::copy_to_region(x, tp).matmul(own_columns).relu();
  const auto y = cohort::parallel::reduce_from_region(hidden.matmul(own_rows), tp);
  TORCH_CHECK(at::equal(y, at::full({2, 4}, 24)));
}

void share_positions(const cohort::Group& tp) {
  cohort::parallel::ColumnParallelLinear up(
      8, 32, cohort::parallel::ColumnParallelOptions{.group = tp, .sequence_parallel = true});
  cohort::parallel::RowParallelLinear down(
      32, 8, cohort::parallel::RowParallelOptions{.group = tp, .sequence_parallel = true});
  torch::nn::LayerNorm norm(torch::nn::LayerNormOptions({8}));
  const auto own_positions = at::ones({2, 3, 8});  // of 6
  down(up(norm(own_positions)).relu()).sum().backward();
  cohort::parallel::reduce_sequence_gradients(norm->parameters(), tp);  // the norm saw only this rank's positions
}

void draw_masks(const cohort::Group& tp) {
  auto hidden = at::ones({2, 16});  // this rank's columns
  {
    const cohort::parallel::RngScope scope(cohort::parallel::RngStreams::kDifferent, tp);
    hidden = at::dropout(hidden, 0.5, /*train=*/true);
  }
}

}  // namespace

void run_tensor_parallel() {
  const auto dims = cohort::parallel::ParallelDims{.dp_shard = 1, .tp = -1};
  const cohort::DeviceMesh mesh = dims.build_mesh("cpu");
  const cohort::Group tp = mesh.group("tp");
  parallelize_gpt(mesh);
  train_parts(tp);
  regions_by_hand(tp);
  share_positions(tp);
  draw_masks(tp);
  cohort::barrier();
  cohort::destroy_process_group();
}

}  // namespace guide
