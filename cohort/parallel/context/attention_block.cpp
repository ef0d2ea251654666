#include "cohort/parallel/context/attention_block.h"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>

#include <limits>
#include <tuple>

namespace cohort::parallel {
namespace {

bool has_flash_kernel(const at::Tensor& query, const at::Tensor& value) {
  return query.is_cpu() && query.size(-1) == value.size(-1);
}

// Repeats each key head for the query heads that use it.
at::Tensor for_each_head(const at::Tensor& tensor, int64_t num_heads) {
  if (tensor.size(1) == num_heads) return tensor;
  return tensor.repeat_interleave(num_heads / tensor.size(1), 1);
}

at::Tensor sum_per_key_head(const at::Tensor& gradient, int64_t num_key_heads) {
  if (gradient.size(1) == num_key_heads) return gradient;
  return gradient.unflatten(1, {num_key_heads, -1}).sum(2);
}

at::Tensor scores_of(const at::Tensor& query, const at::Tensor& key, const BlockKind& kind) {
  auto scores = query.matmul(key.transpose(-2, -1)).mul_(kind.scale);
  if (!kind.is_causal) return scores;
  const auto hidden = at::ones({query.size(2), key.size(2)}, query.options().dtype(at::kBool)).triu_(1);
  return scores.masked_fill_(hidden, -std::numeric_limits<double>::infinity());
}

AttentionBlock attend_plainly(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                              const BlockKind& kind) {
  const auto dtype = at::toOpMathType(query.scalar_type());
  const auto scores = scores_of(query.to(dtype), key.to(dtype), kind);
  const auto lse = scores.logsumexp(-1);
  const auto weights = (scores - lse.unsqueeze(-1)).exp_();
  return {weights.matmul(value.to(dtype)).to(query.scalar_type()), lse};
}

BlockGradients attend_plainly_backward(const at::Tensor& gradient, const at::Tensor& query, const at::Tensor& key,
                                       const at::Tensor& value, const AttentionBlock& block, const BlockKind& kind) {
  const auto dtype = at::toOpMathType(query.scalar_type());
  const auto q = query.to(dtype), k = key.to(dtype), v = value.to(dtype), g = gradient.to(dtype);
  const auto weights = (scores_of(q, k, kind) - block.lse.unsqueeze(-1)).exp_();
  const auto of_weights = g.matmul(v.transpose(-2, -1));
  const auto mean = (g * block.out.to(dtype)).sum(-1, /*keepdim=*/true);
  const auto of_scores = weights * (of_weights - mean) * kind.scale;
  return {of_scores.matmul(k), of_scores.transpose(-2, -1).matmul(q), weights.transpose(-2, -1).matmul(g)};
}

}  // namespace

AttentionBlock attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const BlockKind& kind) {
  const auto keys = for_each_head(key, query.size(1)), values = for_each_head(value, query.size(1));
  if (!has_flash_kernel(query, value)) return attend_plainly(query, keys, values, kind);
  auto [out, lse] = at::_scaled_dot_product_flash_attention_for_cpu(query, keys, values, /*dropout_p=*/0.0,
                                                                    kind.is_causal, {}, kind.scale);
  return {out, lse};
}

BlockGradients attend_backward(const at::Tensor& gradient, const at::Tensor& query, const at::Tensor& key,
                               const at::Tensor& value, const AttentionBlock& block, const BlockKind& kind) {
  const auto keys = for_each_head(key, query.size(1)), values = for_each_head(value, query.size(1));
  BlockGradients result;
  if (has_flash_kernel(query, value)) {
    std::tie(result.query, result.key, result.value) = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        gradient, query, keys, values, block.out, block.lse, /*dropout_p=*/0.0, kind.is_causal, {}, kind.scale);
  } else {
    result = attend_plainly_backward(gradient, query, keys, values, block, kind);
  }
  result.key = sum_per_key_head(result.key, key.size(1));
  result.value = sum_per_key_head(result.value, key.size(1));
  return result;
}

// With a = exp(lse) and b = exp(block.lse): out = (a out + b block.out) / (a + b), where b / (a + b) = sigmoid(log b - log a).
void merge(const AttentionBlock& sum, const AttentionBlock& block) {
  const auto lse = block.lse.to(sum.lse.scalar_type());
  const auto share = (lse - sum.lse).sigmoid_().unsqueeze(-1);
  sum.out.lerp_(block.out.to(sum.out.scalar_type()), share);
  sum.lse.copy_(at::logaddexp(sum.lse, lse));
}

}  // namespace cohort::parallel
