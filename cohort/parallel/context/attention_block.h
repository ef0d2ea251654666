/// Computes attention of some queries to some keys, with the numbers needed to merge it with attention to other keys.
///
/// Shapes: query [batch, heads, positions, size], key and value [batch, key heads, their positions, size]; `heads` is a multiple
/// of the key heads. Uses the CPU's flash kernels where they apply, which return a log-sum-exp; elsewhere plain matrix products,
/// which hold all scores. Local. No autograd.
#pragma once

#include <ATen/core/Tensor.h>

#include "cohort/export.h"

namespace cohort::parallel {

struct AttentionBlock {
  at::Tensor out;  ///< as the query, with the value's size; in the query's dtype
  at::Tensor lse;  ///< [batch, heads, positions]: log-sum-exp of the scores; float32, or float64
};

struct BlockKind {
  bool is_causal = false;  ///< position i sees keys up to the i-th; requires as many queries as keys
  double scale = 1;        ///< of the scores
};

COHORT_TEST_API AttentionBlock attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                      const BlockKind& kind);

struct BlockGradients {
  at::Tensor query, key, value;
};

/// `block`: the attention of the same queries to all keys that they see, of which these are some.
COHORT_TEST_API BlockGradients attend_backward(const at::Tensor& gradient, const at::Tensor& query,
                                               const at::Tensor& key, const at::Tensor& value,
                                               const AttentionBlock& block, const BlockKind& kind);

/// Adds to `sum`, float32 or float64, in place, the attention of the same queries to other keys.
void merge(const AttentionBlock& sum, const AttentionBlock& block);

}  // namespace cohort::parallel
