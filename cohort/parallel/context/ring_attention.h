/// Ring attention: each rank has some positions of a sequence, with their queries, keys and values, and sees the keys and values
/// of all.
///
///     auto own = cohort::ring_attention(q, k, v, {.is_causal = true, .group = cp});   // this rank's positions of the result
///
/// Keys and values pass by, block by block, while this rank works on the block before; results are merged by their
/// log-sum-exp. Forward and backward equal attention of the whole sequence in one process, up to rounding, and hold no scores of
/// the whole. Follows torch/distributed/tensor/experimental/_context_parallel/_attention.py.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"
#include "cohort/parallel/context/sequence_layout.h"

namespace cohort {

/// How keys and values come to a rank, and their gradients go back.
enum class RotateMethod {
  kAllGather,  ///< all at once: one exchange, memory for all keys and values
  kAllToAll    ///< from neighbour to neighbour: memory for two blocks
};

struct RingAttentionOptions {
  /// Null: the default group; a rank that is alone has the whole sequence.
  Group group = {};
  bool is_causal = false;
  /// Of the scores. Absent: 1 / sqrt(size of a head).
  std::optional<double> scale = {};
  /// Fewer heads of keys and values than of queries, of which they divide the number.
  bool enable_gqa = false;
  /// Which positions this rank has; matters for a causal mask only.
  SequenceLayout layout = SequenceLayout::kHeadTail;
  RotateMethod rotate = RotateMethod::kAllGather;
};

/// `query` [batch, heads, own positions, size], `key` and `value` [batch, key heads, own positions, size]: floating-point, of one
/// dtype and the same shapes on all ranks. Returns the query's shape with the value's size. Merges in float32, or float64.
/// Collective, as is its backward, which has no second derivative.
/// Throws c10::ValueError for shapes that do not fit, c10::DistBackendError when an exchange fails, and c10::Error for backward
/// under create_graph.
COHORT_API at::Tensor ring_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                     const RingAttentionOptions& options = {});

}  // namespace cohort
