/// Where a cut of a dimension lands when a tensor is given another shape with the same elements in the same order. Pure.
#pragma once

#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <optional>

#include "cohort/export.h"
#include "cohort/mesh/placement.h"

namespace cohort::dtensor {

/// `cut`: a shard of a tensor of the sizes `from`, over `num_ranks`; by `cut_before` ranks, axes before this one have cut the same
/// dimension, 1 for none. The placement in the sizes `to` by which every rank has the same elements in the same order; nothing
/// where there is none.
///
/// Dimensions that are joined keep the cut of the first of them; a later one becomes a StridedShard, a piece for each index before
/// it, and such a one a plain Shard again when they are split.
COHORT_TEST_API std::optional<Placement> viewed(const Placement& cut, c10::IntArrayRef from, c10::IntArrayRef to,
                                                int64_t num_ranks, int64_t cut_before);

}  // namespace cohort::dtensor
