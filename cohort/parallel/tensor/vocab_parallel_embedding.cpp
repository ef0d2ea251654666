#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <ostream>

#include "cohort/mesh/shard.h"
#include "cohort/parallel/module/sharded_tensors.h"
#include "cohort/parallel/tensor/division.h"
#include "cohort/parallel/tensor/parallel_layers.h"
#include "cohort/parallel/tensor/regions.h"
#include "cohort/parallel/tensor/shards.h"

namespace cohort::parallel {
namespace {

using parallel::place_in;

int64_t checked_padding(int64_t padding, int64_t num_embeddings) {
  TORCH_CHECK_VALUE(padding >= -num_embeddings && padding < num_embeddings,
                    "[cohort] VocabParallelEmbedding: padding_idx ", padding, " is not a row of a table of ",
                    num_embeddings);
  return padding < 0 ? padding + num_embeddings : padding;
}

// An index that no rank looks up would silently give zeros.
void check_in_table(const at::Tensor& indices, int64_t num_embeddings) {
  if (!indices.is_cpu() || indices.numel() == 0) return;
  const auto [least, greatest] = at::aminmax(indices);
  const auto low = least.item<int64_t>(), high = greatest.item<int64_t>();
  TORCH_CHECK_INDEX(low >= 0 && high < num_embeddings, "[cohort] VocabParallelEmbedding: index ", low < 0 ? low : high,
                    " is outside a table of ", num_embeddings, " rows");
}

}  // namespace

VocabParallelEmbeddingImpl::VocabParallelEmbeddingImpl(int64_t num_embeddings, int64_t embedding_dim,
                                                       const VocabParallelOptions& options)
    : num_embeddings(num_embeddings), embedding_dim(embedding_dim), options(options) {
  TORCH_CHECK_VALUE(num_embeddings > 0 && embedding_dim > 0,
                    "[cohort] VocabParallelEmbedding needs at least 1 row and 1 column, but got ", num_embeddings,
                    " and ", embedding_dim);
  auto& padding = this->options.padding_idx;
  if (padding) padding = checked_padding(*padding, num_embeddings);
  const at::NoGradGuard no_grad;
  const auto full = at::empty({num_embeddings, embedding_dim}).normal_();
  if (padding) full[*padding].zero_();
  const at::AutoGradMode with_grad(true);
  weight = register_parameter("weight", parallel::scatter_parameter(full, Shard(0), place_in(options.group)));
}

VocabParallelEmbeddingImpl::~VocabParallelEmbeddingImpl() {
  weight.reset();
  parameters_.clear();
  parallel::forget_ended_shards();
}

void VocabParallelEmbeddingImpl::pretty_print(std::ostream& stream) const {
  stream << "cohort::parallel::VocabParallelEmbedding(num_embeddings=" << weight.size(0) << " of " << num_embeddings
         << ", embedding_dim=" << embedding_dim << ")";
}

at::Tensor VocabParallelEmbeddingImpl::forward(const at::Tensor& indices) {
  check_in_table(indices, num_embeddings);
  const auto place = place_in(options.group);
  const auto own = mesh::chunk_range(num_embeddings, place.num_ranks, place.rank);
  const auto local = indices - own.begin;
  const auto is_elsewhere = local.lt(0).logical_or_(local.ge(own.size()));
  const auto padding = options.padding_idx ? *options.padding_idx - own.begin : -1;
  at::Tensor rows;
  if (own.size() == 0) {
    auto shape = indices.sizes().vec();
    shape.push_back(embedding_dim);
    rows = at::zeros(shape, weight.options()) + weight.sum();  // so that this rank's backward has a graph, too
  } else {
    const bool pads = padding >= 0 && padding < own.size();
    rows = at::embedding(weight, local.masked_fill(is_elsewhere, 0), pads ? padding : -1)
               .masked_fill(is_elsewhere.unsqueeze(-1), 0);
  }
  if (!options.sequence_parallel) return reduce_from_region(rows, options.group);
  divided(rows.size(options.sequence_dim), "positions of the sequence", options.group);
  return reduce_scatter_to_region(rows, options.sequence_dim, options.group);
}

void VocabParallelEmbeddingImpl::load_full(const at::Tensor& full_weight) {
  parallel::load_shard(weight, full_weight, Shard(0), {num_embeddings, embedding_dim}, place_in(options.group),
                       "weight");
}

at::Tensor VocabParallelEmbeddingImpl::full_weight() const {
  return parallel::gather_parameter(weight, Shard(0), {num_embeddings, embedding_dim}, place_in(options.group));
}

}  // namespace cohort::parallel
