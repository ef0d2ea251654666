/// Attention of a whole sequence, and what a rank that has some of its positions must have of it.
#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "cohort/comm/group/process_group.h"
#include "cohort/parallel/context/sequence_layout.h"
#include "tests/parallel/tensor/numbers.h"

namespace cohort::test {

struct AttentionCase {
  int64_t heads = 4, key_heads = 4;
  int64_t length = 16, key_length = 16;
  int64_t size = 8, value_size = 8;
  bool is_causal = false;
  parallel::SequenceLayout layout = parallel::SequenceLayout::kHeadTail;
  at::ScalarType dtype = at::kFloat;
  double tolerance = 2e-5;
  std::optional<double> scale = {};
};

struct WholeAttention {
  at::Tensor query, key, value, cotangent;
  at::Tensor out;
  std::vector<at::Tensor> gradients;  // of the first three
};

inline WholeAttention whole_attention(const AttentionCase& c, const std::optional<at::Tensor>& mask = {}) {
  WholeAttention whole;
  whole.query = drawn({2, c.heads, c.length, c.size}, 1, c.dtype).requires_grad_();
  whole.key = drawn({2, c.key_heads, c.key_length, c.size}, 2, c.dtype).requires_grad_();
  whole.value = drawn({2, c.key_heads, c.key_length, c.value_size}, 3, c.dtype).requires_grad_();
  whole.cotangent = drawn({2, c.heads, c.length, c.value_size}, 4, c.dtype);
  whole.out = at::scaled_dot_product_attention(whole.query, whole.key, whole.value, mask, 0.0, c.is_causal, c.scale,
                                               c.heads != c.key_heads);
  whole.gradients = gradients_of(whole.out, whole.cotangent, {whole.query, whole.key, whole.value});
  return whole;
}

/// This rank's positions of attention that `attend` computes of this rank's positions, and its gradients.
template <class Attend>
void require_own_positions(const AttentionCase& c, const WholeAttention& whole, Attend attend,
                           const Group& group = {}) {
  const auto own = [&](const at::Tensor& tensor) {
    return parallel::shard_sequence(tensor.detach(), 2, c.layout, group);
  };
  std::vector<at::Tensor> inputs;
  for (const auto& tensor : {whole.query, whole.key, whole.value}) inputs.push_back(own(tensor).requires_grad_());
  const auto out = attend(inputs[0], inputs[1], inputs[2]);
  REQUIRE(out.scalar_type() == c.dtype);
  require_near(out, own(whole.out), c.tolerance, "out");
  const auto gradients = gradients_of(out, own(whole.cotangent), inputs);
  const char* const names[] = {"query", "key", "value"};
  for (size_t i = 0; i < gradients.size(); ++i) {
    REQUIRE(gradients[i].scalar_type() == c.dtype);
    require_near(gradients[i], own(whole.gradients[i]), 5 * c.tolerance, names[i]);
  }
}

}  // namespace cohort::test
