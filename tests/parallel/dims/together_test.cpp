// Tensor, sequence, context and data parallelism in one training run: losses are those of one process.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/normalization.h>
#include <torch/optim/adamw.h>

#include <algorithm>
#include <stdexcept>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/group/subgroups.h"
#include "cohort/parallel/activation/checkpoint.h"
#include "cohort/parallel/context/context_parallel.h"
#include "cohort/parallel/context/ulysses_attention.h"
#include "cohort/parallel/ddp/distributed_data_parallel.h"
#include "cohort/parallel/dims/parallel_dims.h"
#include "cohort/parallel/optim/clip_grad.h"
#include "cohort/parallel/tensor/division.h"
#include "cohort/parallel/tensor/parallel_layers.h"
#include "cohort/parallel/tensor/regions.h"
#include "cohort/parallel/tensor/rng_scope.h"
#include "cohort/parallel/tensor/vocab_parallel_cross_entropy.h"
#include "tests/support/rank_processes.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"

namespace cohort {
namespace {

using test::run_workers;

constexpr int64_t kWords = 22, kWidth = 16, kHeads = 4, kLength = 16, kBatch = 4, kSteps = 6;

struct Strategy {
  parallel::ParallelDims dims;
  bool shares_positions = false;
  bool checkpoints = false;
};

torch::nn::LayerNorm norm() { return torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})); }

struct TinyGptImpl : torch::nn::Module {
  TinyGptImpl(const Group& tp, const Strategy& strategy)
      : tp(tp),
        strategy(strategy),
        words(register_module(
            "words", parallel::VocabParallelEmbedding(
                         kWords, kWidth,
                         parallel::VocabParallelOptions{.group = tp, .sequence_parallel = strategy.shares_positions}))),
        places(register_parameter("places", at::randn({kLength, kWidth}))),
        norms{register_module("norm1", norm()), register_module("norm2", norm()), register_module("norm3", norm())},
        query(register_module("query", column(kWidth))),
        key(register_module("key", column(kWidth))),
        value(register_module("value", column(kWidth))),
        out(register_module("out", row(kWidth))),
        up(register_module("up", column(4 * kWidth))),
        down(register_module("down", row(4 * kWidth))),
        head(register_module("head", column(kWords))) {}

  parallel::ColumnParallelLinear column(int64_t features) {
    return parallel::ColumnParallelLinear(kWidth, features,
                                          parallel::ColumnParallelOptions{.group = tp, .copy_input = false});
  }
  parallel::RowParallelLinear row(int64_t features) {
    return parallel::RowParallelLinear(
        features, kWidth, parallel::RowParallelOptions{.group = tp, .sequence_parallel = strategy.shares_positions});
  }
  at::Tensor for_columns(const at::Tensor& x) {
    if (!strategy.shares_positions) return parallel::copy_to_region(x, tp);
    return parallel::gather_from_region(x, 1, {.group = tp, .gradient = parallel::RegionGradient::kSum});
  }

  at::Tensor attention(const at::Tensor& x) {
    const auto heads = [&](const at::Tensor& t) {
      return t.unflatten(-1, {parallel::divided(kHeads, "heads", tp), -1}).transpose(1, 2);
    };
    const auto y = for_columns(norms[0]->forward(x));
    return out(at::scaled_dot_product_attention(heads(query(y)), heads(key(y)), heads(value(y)), {}, 0, true)
                   .transpose(1, 2)
                   .flatten(2));
  }
  at::Tensor block(const at::Tensor& x) {
    const auto y = x + attention(x);
    return y + down(at::gelu(up(for_columns(norms[1]->forward(y)))));
  }

  at::Tensor forward(const at::Tensor& tokens, const at::Tensor& positions) {
    auto of_places = places.index_select(0, positions);
    if (strategy.shares_positions) of_places = parallel::scatter_to_region(of_places, 0, tp);
    const auto x = words(tokens) + of_places;
    const auto y =
        strategy.checkpoints ? activation::checkpoint([this](const at::Tensor& z) { return block(z); }, x) : block(x);
    return head(for_columns(norms[2]->forward(y)));
  }

  std::vector<at::Tensor> parameters_of_norms() {
    std::vector<at::Tensor> found;
    for (const auto& each : norms) found.insert(found.end(), {each->weight, each->bias});
    return found;
  }

  Group tp;
  Strategy strategy;
  parallel::VocabParallelEmbedding words;
  at::Tensor places;
  std::vector<torch::nn::LayerNorm> norms;
  parallel::ColumnParallelLinear query, key, value;
  parallel::RowParallelLinear out;
  parallel::ColumnParallelLinear up;
  parallel::RowParallelLinear down;
  parallel::ColumnParallelLinear head;
};
TORCH_MODULE(TinyGpt);

// A group of this rank alone where the mesh has no such axis.
Group group_of(const DeviceMesh& mesh, const std::string& name, const Group& alone) {
  const auto& names = mesh.axis_names();
  const bool is_there = std::find(names.begin(), names.end(), name) != names.end();
  if (is_there) return mesh.group(name);
  if (name == "tp" || name == "cp") return alone;
  try {
    return mesh[name].group();
  } catch (const c10::IndexError&) {
    return alone;
  }
}

struct Groups {
  Group tp, cp, dp, dp_cp;
};

// The losses of all sequences and positions together.
std::vector<double> train(const Strategy& strategy, const Groups& groups) {
  at::manual_seed(1);
  TinyGpt model(groups.tp, strategy);
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(3e-2));
  std::optional<DistributedDataParallel<TinyGptImpl>> replica;
  if (groups.dp_cp->getSize() > 1) replica.emplace(model, ddp::Options{.process_group = groups.dp_cp});
  std::vector<double> losses;
  for (int64_t step = 0; step < kSteps; ++step) {
    const auto batch =
        (at::arange(kBatch * (kLength + 1)) * 7 + step * 3).remainder(kWords).view({kBatch, kLength + 1});
    const auto rows = kBatch / groups.dp->getSize();
    const auto own = batch.narrow(0, groups.dp->getRank() * rows, rows);
    const auto tokens = own.narrow(1, 0, kLength).clone(), targets = own.narrow(1, 1, kLength).clone(),
               positions = at::arange(kLength);
    const ContextParallel scope(groups.cp, {.buffers = {tokens, targets, positions}, .buffer_seq_dims = {1, 1, 0}});
    const auto logits = replica ? (*replica)(tokens, positions) : model(tokens, positions);
    auto loss = parallel::vocab_parallel_cross_entropy(logits.flatten(0, 1), targets.flatten(),
                                                       {.group = groups.tp, .num_classes = kWords});
    optimizer.zero_grad();
    loss.backward();
    if (strategy.shares_positions) parallel::reduce_sequence_gradients(model->parameters_of_norms(), groups.tp);
    nn::utils::clip_grad_norm_(model->parameters(), 0.5);
    optimizer.step();
    loss = loss.detach();
    all_reduce(loss, {.op = ReduceOp::SUM, .group = groups.dp_cp});
    losses.push_back(loss.item<double>() / groups.dp_cp->getSize());
  }
  return losses;
}

COHORT_WORKER(together) {
  init_process_group({.backend = test::backend_of_tests()});
  Group alone;
  for (int rank = 0; rank < get_world_size(); ++rank) {
    const auto group = new_group({rank});
    if (rank == get_rank()) alone = group;
  }
  const auto expected = train({}, {alone, alone, alone, alone});
  REQUIRE(expected.back() < 0.8 * expected.front());
  const std::vector<Strategy> strategies{
      {.dims = {.tp = 4}},
      {.dims = {.tp = 4}, .shares_positions = true},
      {.dims = {.dp_replicate = 2, .tp = 2}},
      {.dims = {.dp_shard = 2, .tp = -1}, .shares_positions = true, .checkpoints = true},
      {.dims = {.tp = 2, .cp = 2}, .checkpoints = true},
      {.dims = {.tp = 2, .cp = 2}, .shares_positions = true},
      {.dims = {.dp_replicate = 2, .cp = 2}},
      {.dims = {.cp = 4}}};
  for (const auto& strategy : strategies) {
    const auto mesh = strategy.dims.build_mesh("cpu");
    const auto losses = train(strategy, {group_of(mesh, "tp", alone), group_of(mesh, "cp", alone),
                                         group_of(mesh, "dp", alone), group_of(mesh, "dp_cp", alone)});
    for (size_t i = 0; i < losses.size(); ++i) {
      if (std::abs(losses[i] - expected[i]) <= 1e-5 * expected[i]) continue;
      throw std::runtime_error(mesh.to_string() + ": step " + std::to_string(i) + " has loss " +
                               std::to_string(losses[i]) + ", one process " + std::to_string(expected[i]));
    }
  }
  barrier();  // no rank leaves while another one connects
  destroy_process_group();
}

TEST(TensorParallelTogether, LossesAreThoseOfOneProcess) {
  run_workers("together", {.world_size = 4, .time_limit = std::chrono::seconds(120)}).expect_success();
}

// How many collectives this rank begins.
template <class Function>
int64_t exchanges_of(Function function) {
  const auto before = get_sequence_number();
  function();
  return static_cast<int64_t>(get_sequence_number() - before);
}

// A forward pass, then backward of what it gives.
template <class Forward>
void require_exchanges(Forward forward, int64_t in_forward, int64_t in_backward) {
  at::Tensor result;
  const auto first = exchanges_of([&] { result = forward(); });
  const auto second = exchanges_of([&] { result.sum().backward(); });
  if (first == in_forward && second == in_backward) return;
  throw std::runtime_error(std::to_string(first) + " and " + std::to_string(second) + " exchanges, expected " +
                           std::to_string(in_forward) + " and " + std::to_string(in_backward));
}

COHORT_WORKER(exchanges) {
  init_process_group({.backend = test::backend_of_tests()});
  const auto x = at::ones({2, 4, 8}).requires_grad_();
  parallel::ColumnParallelLinear up(8, 8);
  parallel::RowParallelLinear down(8, 8);
  require_exchanges([&] { return down(up(x).relu()); }, 1, 1);
  parallel::ColumnParallelLinear up_from_positions(8, 8, parallel::ColumnParallelOptions{.sequence_parallel = true});
  parallel::RowParallelLinear down_to_positions(8, 8,
                                                parallel::RowParallelOptions{.bias = false, .sequence_parallel = true});
  require_exchanges([&] { return down_to_positions(up_from_positions(x).relu()); }, 2, 2);
  require_exchanges([&] { return parallel::vocab_parallel_cross_entropy(x.flatten(0, 1), at::zeros({8}, at::kLong)); },
                    2, 0);
  const auto q = at::ones({1, 2, 4, 8}).requires_grad_();
  require_exchanges([&] { return parallel::ring_attention(q, q, q, {.is_causal = true}); }, 1, 2);
  const auto n = static_cast<int64_t>(get_world_size());
  require_exchanges(
      [&] { return parallel::ring_attention(q, q, q, {.is_causal = true, .rotate = RotateMethod::kAllToAll}); }, n - 1,
      2 * n - 1);
  require_exchanges([&] { return parallel::ulysses_attention(q, q, q, {.is_causal = true}); }, 2, 2);
  destroy_process_group();
}

TEST(TensorParallelTogether, ExchangeNoMoreThanNeeded) { run_workers("exchanges").expect_success(); }

// Draws that differ over the ranks are the same ones when backward computes again.
COHORT_WORKER(draws_again) {
  init_process_group({.backend = test::backend_of_tests()});
  const auto drops = [](const at::Tensor& x) {
    const parallel::RngScope scope(parallel::RngStreams::kDifferent);
    return at::dropout(x.sin(), 0.5, /*train=*/true).cos();
  };
  const auto x = at::linspace(0, 1, 64).requires_grad_(), again = x.detach().clone().requires_grad_();
  at::manual_seed(3);
  drops(x).sum().backward();
  at::manual_seed(3);
  const auto y = activation::checkpoint(drops, again);
  at::manual_seed(4);
  y.sum().backward();
  REQUIRE(at::equal(again.grad(), x.grad()));
  barrier();
  destroy_process_group();
}

TEST(TensorParallelTogether, DrawsAreRepeatedByCheckpointing) { run_workers("draws_again").expect_success(); }

}  // namespace
}  // namespace cohort
