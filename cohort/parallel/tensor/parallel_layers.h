/// Layers whose weights are sharded over the ranks of a tensor-parallel group, for models that are written for it.
///
///     using namespace cohort::parallel;
///     ColumnParallelLinear up(64, 256, ColumnParallelOptions{.group = tp});  // of 256 outputs its own
///     RowParallelLinear down(256, 64, RowParallelOptions{.group = tp});      // takes them, gives all of 64
///     auto y = down(up(x).relu());                // one all-reduce in forward, one in backward
///
/// Names and meaning follow megatron/core/tensor_parallel/layers.py; defaults are those of a column layer followed by a row
/// layer. Shards are those of torch.chunk: any sizes work, and the last ranks' shards may be short or empty. Parameters are named
/// "weight" and "bias", as in torch::nn::Linear and Embedding, but hold this rank's shard, which clip_grad_norm_, get_state_dict
/// and fully_shard know. Give fully_shard the ranks that have the same shard: the mesh's data-parallel axes.
///
/// Initial values are those of LibTorch's layer on rank 0 of the group: every rank draws the full weight from the default
/// generator, and keeps its shard of rank 0's. So a model starts with the same numbers on any number of ranks.
///
/// Sequence parallel: activations between the layers are sharded evenly along `sequence_dim`. A column layer gathers them; a row
/// layer and an embedding reduce-scatter them. Modules between them with parameters (norms) see a shard of the positions: call
/// reduce_sequence_gradients() with those parameters after backward. Dropout there must differ between ranks: rng_scope.h.
///
/// `group`: if null, the default group; a rank that is alone has the full weights. Constructors, forward, backward and
/// full_weight() are collective. Throws c10::ValueError for sizes that do not fit. Not thread-safe.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <vector>

#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"

namespace cohort::parallel {

struct ColumnParallelOptions {
  Group group = {};
  bool bias = true;
  /// If false, the input comes from copy_to_region, or with RegionGradient::kSum from gather_from_region, which several layers
  /// share.
  bool copy_input = true;
  /// Gives every rank all outputs instead of its own.
  bool gather_output = false;
  /// The input is this rank's shard of the positions.
  bool sequence_parallel = false;
  int64_t sequence_dim = 1;
  /// Sequence-parallel: the number of pieces of the gather, of which one is multiplied while the next is in flight. This is an
  /// upper limit, since the number must divide a rank's positions. With more than 1 there are first derivatives only. With
  /// autocast the gather has one piece. If absent: COHORT_GATHER_PIECES, or 4 if the host has a core for every thread of its
  /// ranks (at::get_num_threads()) and one more for each rank, according to rank 0 when the layer is made; else 1.
  std::optional<int64_t> gather_pieces = {};
};

/// y = x W^T + b, of which each rank computes its own outputs: weight and bias are sharded along dimension 0.
class COHORT_API ColumnParallelLinearImpl : public torch::nn::Module {
 public:
  ColumnParallelLinearImpl(int64_t in_features, int64_t out_features, const ColumnParallelOptions& options = {});
  ~ColumnParallelLinearImpl() override;
  void pretty_print(std::ostream& stream) const override;

  /// [..., in_features], the same on every rank -> [..., this rank's outputs], or all of them with gather_output.
  at::Tensor forward(const at::Tensor& input);

  /// Copies this rank's shard of [out_features, in_features] and, if the layer has one, of the bias [out_features]. Local. Call
  /// it before fully_shard (else c10::ValueError).
  void load_full(const at::Tensor& weight, const at::Tensor& bias = {});
  /// Return the full tensors, gathered from all ranks, in new memory.
  at::Tensor full_weight() const;
  at::Tensor full_bias() const;

  int64_t in_features, out_features;
  ColumnParallelOptions options;
  /// [this rank's outputs, in_features] and [this rank's outputs].
  at::Tensor weight, bias;

 private:
  at::Tensor own_outputs(const at::Tensor& input);
};
TORCH_MODULE(ColumnParallelLinear);

struct RowParallelOptions {
  Group group = {};
  bool bias = true;
  /// If false, the input is the full one, of which each rank takes its shard.
  bool input_is_parallel = true;
  /// The output is this rank's shard of the positions.
  bool sequence_parallel = false;
  int64_t sequence_dim = 1;
};

/// y = x W^T + b, of which each rank has some of the inputs: the weight is sharded along dimension 1. Partial results are summed;
/// then the bias, which every rank has, is added once.
class COHORT_API RowParallelLinearImpl : public torch::nn::Module {
 public:
  RowParallelLinearImpl(int64_t in_features, int64_t out_features, const RowParallelOptions& options = {});
  ~RowParallelLinearImpl() override;
  void pretty_print(std::ostream& stream) const override;

  /// [..., this rank's inputs] -> [..., out_features], the same on every rank or, sequence-parallel, its positions.
  at::Tensor forward(const at::Tensor& input);

  /// As in the column layer; the bias is copied as it is.
  void load_full(const at::Tensor& weight, const at::Tensor& bias = {});
  at::Tensor full_weight() const;

  int64_t in_features, out_features;
  RowParallelOptions options;
  /// [out_features, this rank's inputs] and [out_features].
  at::Tensor weight, bias;
};
TORCH_MODULE(RowParallelLinear);

struct VocabParallelOptions {
  Group group = {};
  /// Its row is zero at first and has no gradient; a negative index counts from the end.
  std::optional<int64_t> padding_idx = {};
  /// The output is this rank's shard of the positions.
  bool sequence_parallel = false;
  int64_t sequence_dim = 1;
};

/// An embedding whose rows are sharded. Each rank looks up its own indices, and the results are summed for everyone.
class COHORT_API VocabParallelEmbeddingImpl : public torch::nn::Module {
 public:
  VocabParallelEmbeddingImpl(int64_t num_embeddings, int64_t embedding_dim, const VocabParallelOptions& options = {});
  ~VocabParallelEmbeddingImpl() override;
  void pretty_print(std::ostream& stream) const override;

  /// Takes integers of any shape, the same on every rank -> [..., embedding_dim].
  /// On the CPU throws c10::IndexError for an index outside the table; elsewhere its row is zero.
  at::Tensor forward(const at::Tensor& indices);

  void load_full(const at::Tensor& weight);
  at::Tensor full_weight() const;

  int64_t num_embeddings, embedding_dim;
  VocabParallelOptions options;
  /// [this rank's rows, embedding_dim].
  at::Tensor weight;
};
TORCH_MODULE(VocabParallelEmbedding);

/// Sums, in place and in one exchange, the gradients of parameters that every rank has and that saw only the rank's own
/// positions. For parameters that fully_shard has sharded, pass their shards. Parameters without a gradient are skipped, on all
/// ranks alike. Collective. Throws c10::ValueError for gradients of several dtypes or devices.
COHORT_API void reduce_sequence_gradients(const std::vector<at::Tensor>& parameters, const Group& group = {});

}  // namespace cohort::parallel

// Old names, until the next release.
namespace cohort {
using ColumnParallelOptions [[deprecated("use cohort::parallel::ColumnParallelOptions")]] =
    parallel::ColumnParallelOptions;
using ColumnParallelLinearImpl [[deprecated("use cohort::parallel::ColumnParallelLinearImpl")]] =
    parallel::ColumnParallelLinearImpl;
using ColumnParallelLinear [[deprecated("use cohort::parallel::ColumnParallelLinear")]] =
    parallel::ColumnParallelLinear;
using RowParallelOptions [[deprecated("use cohort::parallel::RowParallelOptions")]] = parallel::RowParallelOptions;
using RowParallelLinearImpl [[deprecated("use cohort::parallel::RowParallelLinearImpl")]] =
    parallel::RowParallelLinearImpl;
using RowParallelLinear [[deprecated("use cohort::parallel::RowParallelLinear")]] = parallel::RowParallelLinear;
using VocabParallelOptions [[deprecated("use cohort::parallel::VocabParallelOptions")]] =
    parallel::VocabParallelOptions;
using VocabParallelEmbeddingImpl [[deprecated("use cohort::parallel::VocabParallelEmbeddingImpl")]] =
    parallel::VocabParallelEmbeddingImpl;
using VocabParallelEmbedding [[deprecated("use cohort::parallel::VocabParallelEmbedding")]] =
    parallel::VocabParallelEmbedding;
using parallel::reduce_sequence_gradients;
}  // namespace cohort
