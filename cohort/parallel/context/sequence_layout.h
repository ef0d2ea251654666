/// Which positions of a sequence a rank has when ranks share it out, and what their number must be.
///
/// Shapes: any tensor, of which one dimension is the sequence. Collective where it says so; all else is local. Null `group` is
/// the default group; a rank that is alone has everything.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"

namespace cohort {

enum class SequenceLayout {
  kContiguous,  ///< rank r of n has the r-th of n equal parts
  /// Rank r has the r-th of 2 n parts and the r-th from the end: with a causal mask, which leaves early positions little
  /// to do, all ranks have as much work.
  kHeadTail
};

/// This rank's positions of `whole` along `dim`, in new memory. Without communication; gradients as of indexing.
/// Throws c10::ValueError, with the division, for a length that does not divide by n (kContiguous) or 2 n (kHeadTail).
COHORT_API at::Tensor shard_sequence(const at::Tensor& whole, int64_t dim, SequenceLayout layout,
                                     const Group& group = {});
/// Collective: all ranks' positions, in the order of the whole. In backward each rank takes its positions of its own gradient.
COHORT_API at::Tensor unshard_sequence(const at::Tensor& part, int64_t dim, SequenceLayout layout,
                                       const Group& group = {});

/// int64 [length]: shards one after the other are whole.index_select(dim, order). Needs no group.
COHORT_API at::Tensor sequence_order(int64_t length, int64_t num_ranks, SequenceLayout layout);

}  // namespace cohort
