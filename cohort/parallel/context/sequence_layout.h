/// The positions of a sequence that a rank has when ranks shard it, and the lengths that this allows.
///
/// Shapes: any tensor, of which one dimension is the sequence. Functions are local unless they say that they are collective.
/// `group`: if null, the default group; a rank that is alone has all positions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"

namespace cohort::parallel {

enum class SequenceLayout {
  kContiguous,  ///< rank r of n has the r-th of n equal parts
  /// Rank r has the r-th of 2 n parts and the r-th from the end. With a causal mask, for which early positions have little work,
  /// all ranks have the same work.
  kHeadTail
};

/// Returns this rank's positions of `full` along `dim`, in new memory. Needs no communication; gradients are those of indexing.
/// Throws c10::ValueError, with the division, if n (kContiguous) or 2 n (kHeadTail) does not divide the length.
COHORT_API at::Tensor shard_sequence(const at::Tensor& full, int64_t dim, SequenceLayout layout,
                                     const Group& group = {});
/// Returns all ranks' positions, in the order of the full sequence. In backward each rank takes its positions of its own
/// gradient. Collective.
COHORT_API at::Tensor unshard_sequence(const at::Tensor& part, int64_t dim, SequenceLayout layout,
                                       const Group& group = {});

/// Returns int64 [length]: the shards one after the other are full.index_select(dim, order). Needs no group.
COHORT_API at::Tensor sequence_order(int64_t length, int64_t num_ranks, SequenceLayout layout);

}  // namespace cohort::parallel

// Old names, until the next release.
namespace cohort {
using SequenceLayout [[deprecated("use cohort::parallel::SequenceLayout")]] = parallel::SequenceLayout;
using parallel::sequence_order;
using parallel::shard_sequence;
using parallel::unshard_sequence;
}  // namespace cohort
