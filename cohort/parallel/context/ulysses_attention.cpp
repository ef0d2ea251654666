#include "cohort/parallel/context/ulysses_attention.h"

#include <ATen/ATen.h>
#include <ATen/ops/scaled_dot_product_attention_native.h>
#include <c10/util/Exception.h>

#include "cohort/parallel/context/sequence_shards.h"
#include "cohort/parallel/tensor/division.h"
#include "cohort/parallel/tensor/group_place.h"
#include "cohort/parallel/tensor/regions.h"

namespace cohort::parallel {
namespace {

// [.., heads, own positions, size] -> [.., own heads, all positions in their order, size]
at::Tensor all_positions(const at::Tensor& tensor, const UlyssesOptions& options, int64_t num_ranks) {
  const auto heads = tensor.dim() - 3, positions = tensor.dim() - 2;
  const auto shards = all_to_all_region(tensor, heads, positions, options.group);
  return parallel::in_order_of_sequence(shards, positions, options.layout, num_ranks);
}

}  // namespace

at::Tensor ulysses_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                             const UlyssesOptions& options) {
  TORCH_CHECK_VALUE(
      query.dim() == 4 && key.dim() == 4 && value.dim() == 4,
      "[cohort] ulysses_attention: query [batch, heads, positions, size], key and value [batch, key heads, their "
      "positions, size] were expected, but got ",
      query.sizes(), ", ", key.sizes(), " and ", value.sizes());
  const auto num_ranks = parallel::place_in(options.group).num_ranks;
  divided(query.size(1), "attention heads", options.group);
  divided(key.size(1), "heads of keys and values", options.group);
  parallel::check_length(query.size(2) * num_ranks, 2, options.layout, num_ranks);
  parallel::check_length(key.size(2) * num_ranks, 2, options.layout, num_ranks);
  at::Tensor q, k, v;
  if (query.sizes() == key.sizes() && key.sizes() == value.sizes()) {  // one exchange for all three
    const auto all = all_positions(at::stack({query, key, value}), options, num_ranks);
    q = all[0], k = all[1], v = all[2];
  } else {
    q = all_positions(query, options, num_ranks);
    k = all_positions(key, options, num_ranks);
    v = all_positions(value, options, num_ranks);
  }
  const auto out = at::native::scaled_dot_product_attention(q, k, v, options.attn_mask, /*dropout_p=*/0.0,
                                                            options.is_causal, options.scale, options.enable_gqa);
  const auto shards = parallel::in_order_of_ranks(out, 2, options.layout, num_ranks);
  return all_to_all_region(shards, 2, 1, options.group);
}

}  // namespace cohort::parallel
