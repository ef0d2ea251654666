// model_parallel_rank BACKEND RESULT: values and gradients of tensor-parallel layers, of a loss of logits in parts and of ring
// attention on this rank. model_parallel_python_rank.py computes the same by PyTorch.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/autograd/autograd.h>

#include "cohort/comm/group/process_group.h"
#include "cohort/mesh/shard.h"
#include "cohort/parallel/context/context_parallel.h"
#include "cohort/parallel/tensor/parallel_layers.h"
#include "cohort/parallel/tensor/vocab_parallel_cross_entropy.h"
#include "tests/e2e/programs/parallel/kept_tensors.h"

namespace {

using cohort::test::keep;
using Tensors = std::vector<at::Tensor>;

at::Tensor drawn(const std::vector<int64_t>& shape, uint64_t seed) {
  return at::randn(shape, at::make_generator<at::CPUGeneratorImpl>(seed), at::kDouble).to(at::kFloat);
}

at::Tensor own_chunk(const at::Tensor& whole, int64_t dim) {
  const auto range = cohort::mesh::chunk_range(whole.size(dim), cohort::get_world_size(), cohort::get_rank());
  return whole.narrow(dim, range.begin, range.size()).clone();
}

void run_layers(const std::string& name, int64_t hidden, bool shares_positions) {
  cohort::parallel::ColumnParallelLinear up(
      6, hidden, cohort::parallel::ColumnParallelOptions{.sequence_parallel = shares_positions});
  cohort::parallel::RowParallelLinear down(hidden, 5,
                                           cohort::parallel::RowParallelOptions{.sequence_parallel = shares_positions});
  up->load_full(drawn({hidden, 6}, 1), drawn({hidden}, 2));
  down->load_full(drawn({5, hidden}, 3), drawn({5}, 4));
  const auto input = drawn({2, 8, 6}, 5), cotangent = drawn({2, 8, 5}, 6);
  const auto x = (shares_positions ? own_chunk(input, 1) : input).requires_grad_();
  const auto y = down->forward(up->forward(x).relu());
  y.backward(shares_positions ? own_chunk(cotangent, 1) : cotangent);
  keep(name + ".y", y);
  keep(name + ".x.grad", x.grad());
  keep(name + ".up.weight.grad", up->weight.grad());
  keep(name + ".up.bias.grad", up->bias.grad());
  keep(name + ".down.weight.grad", down->weight.grad());
  keep(name + ".down.bias.grad", down->bias.grad());
}

void run_embedding(int64_t rows) {
  cohort::parallel::VocabParallelEmbedding table(rows, 4);
  table->load_full(drawn({rows, 4}, 7));
  const auto y = table->forward(at::arange(24).remainder(rows).view({3, 8}));
  y.backward(drawn({3, 8, 4}, 8));
  const auto name = "embedding" + std::to_string(rows);
  keep(name + ".y", y);
  keep(name + ".grad", table->weight.grad());
}

void run_loss() {
  const std::map<std::string, at::Reduction::Reduction> reductions{
      {"mean", at::Reduction::Mean}, {"sum", at::Reduction::Sum}, {"none", at::Reduction::None}};
  for (const auto& [name, reduction] : reductions) {
    for (const int64_t ignored : {-100, 3}) {
      const auto logits = own_chunk(drawn({6, 12}, 9) * 4, 1).requires_grad_();
      const auto loss = cohort::parallel::vocab_parallel_cross_entropy(
          logits, at::arange(1, 7), {.reduction = reduction, .ignore_index = ignored});
      loss.backward(at::ones_like(loss));
      keep("loss." + name + std::to_string(ignored), loss);
      keep("loss." + name + std::to_string(ignored) + ".grad", logits.grad());
    }
  }
}

void run_attention(bool is_causal, bool load_balance, cohort::RotateMethod rotate, const std::string& name) {
  const auto layout =
      load_balance ? cohort::parallel::SequenceLayout::kHeadTail : cohort::parallel::SequenceLayout::kContiguous;
  Tensors inputs;
  for (const uint64_t seed : {10, 11, 12}) {
    inputs.push_back(cohort::parallel::shard_sequence(drawn({2, 3, 16, 8}, seed), 2, layout).requires_grad_());
  }
  const auto out = cohort::parallel::ring_attention(inputs[0], inputs[1], inputs[2],
                                                    {.is_causal = is_causal, .layout = layout, .rotate = rotate});
  const auto gradients =
      torch::autograd::grad({out}, inputs, {cohort::parallel::shard_sequence(drawn({2, 3, 16, 8}, 13), 2, layout)});
  keep(name + ".out", out);
  for (size_t i = 0; i < 3; ++i) keep(name + ".grad" + std::to_string(i), gradients[i]);
}

void run_buffers() {
  for (const bool load_balance : {true, false}) {
    const std::string name = load_balance ? "buffers.balanced" : "buffers.plain";
    const auto tokens = drawn({2, 16}, 14), positions = drawn({16, 3}, 15);
    {
      const cohort::ContextParallel scope(cohort::Group(), {.buffers = {tokens, positions},
                                                            .buffer_seq_dims = {1, 0},
                                                            .no_restore_buffers = {positions},
                                                            .load_balance = load_balance});
      keep(name + ".tokens", tokens);
    }
    keep(name + ".positions", positions);
    keep(name + ".restored", tokens);
    const auto own = drawn({2, 4, 3}, 16 + cohort::get_rank());
    keep(name + ".whole", cohort::context_parallel_unshard(cohort::Group(), {own}, {1}, load_balance)[0]);
  }
}

void run_all() {
  for (const int64_t hidden : {8, 7}) run_layers("mlp" + std::to_string(hidden), hidden, false);
  run_layers("sequence", 8, true);
  for (const int64_t rows : {12, 10}) run_embedding(rows);
  run_loss();
  run_buffers();
  for (const auto& [method, rotate] : {std::pair("allgather", cohort::RotateMethod::kAllGather),
                                       std::pair("alltoall", cohort::RotateMethod::kAllToAll)}) {
    run_attention(true, true, rotate, std::string("causal.balanced.") + method);
    run_attention(true, false, rotate, std::string("causal.plain.") + method);
    run_attention(false, false, rotate, std::string("full.plain.") + method);
  }
}

}  // namespace

int main(int, char** argv) { return cohort::test::keep_of_rank(argv, run_all); }
