/// Ring attention: each rank has some positions of a sequence, with their queries, keys and values, and attends to the keys and
/// values of all positions.
///
///     // This rank's positions of the result.
///     auto own = cohort::parallel::ring_attention(q, k, v, {.group = cp, .is_causal = true});
///
/// Keys and values pass through the ranks, block by block, while each rank works on the block before; results are merged by their
/// log-sum-exp. Forward and backward equal attention of the full sequence in one process, up to rounding, and never hold all
/// scores. Follows torch/distributed/tensor/experimental/_context_parallel/_attention.py.
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
  kAllToAll    ///< from neighbor to neighbor: memory for two blocks
};

}  // namespace cohort

namespace cohort::parallel {

struct RingAttentionOptions {
  /// If null, the default group; a rank that is alone has the full sequence.
  Group group = {};
  bool is_causal = false;
  /// Factor of the scores. If absent, 1 / sqrt(size of a head).
  std::optional<double> scale = {};
  /// Allows fewer heads of keys and values than of queries; their number must divide that of the query heads.
  bool enable_gqa = false;
  /// The positions that this rank has; matters only for a causal mask.
  SequenceLayout layout = SequenceLayout::kHeadTail;
  RotateMethod rotate = RotateMethod::kAllGather;
};

/// `query` [batch, heads, own positions, size], `key` and `value` [batch, key heads, own positions, size]: floating-point, of one
/// dtype and the same shapes on all ranks. Returns a tensor of the query's shape with the value's size. Merges in float32, or
/// float64. Forward and backward are collective; backward has no second derivative.
/// Throws c10::ValueError for shapes that do not fit, c10::DistBackendError if an exchange fails, and c10::Error for backward
/// with create_graph.
COHORT_API at::Tensor ring_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                     const RingAttentionOptions& options = {});

}  // namespace cohort::parallel

// Old names, until the next release.
namespace cohort {
using RingAttentionOptions [[deprecated("use cohort::parallel::RingAttentionOptions")]] =
    parallel::RingAttentionOptions;
using parallel::ring_attention;
}  // namespace cohort
