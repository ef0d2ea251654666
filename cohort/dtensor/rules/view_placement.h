/// The placement of a sharded tensor after a view: another shape with the same elements in the same order. Pure.
#pragma once

#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <optional>

#include "cohort/export.h"
#include "cohort/mesh/placement.h"

namespace cohort::dtensor {

/// Returns the placement in the sizes `to` with which every rank has the same elements in the same order; absent if there is
/// none. `cut`: a shard of a tensor of the sizes `from`, over `num_ranks`.
///
/// If dimensions are joined, a shard of the first one stays a Shard. A shard of a later one becomes a StridedShard with one piece
/// for each index before it, and a plain Shard again when the dimensions are split.
COHORT_TEST_API std::optional<Placement> viewed(const Placement& cut, c10::IntArrayRef from, c10::IntArrayRef to,
                                                int64_t num_ranks);

/// Does the same for all axes of a mesh, one after the other, each on what the axes before it leave. `kept`: the tensor's
/// placements, with Replicate() for those that the view cannot keep. `viewed`: the view's placements.
struct ViewedPlacements {
  Placements kept, viewed;
};
COHORT_TEST_API ViewedPlacements viewed(const Placements& placements, c10::IntArrayRef from, c10::IntArrayRef to,
                                        c10::IntArrayRef mesh_shape);

}  // namespace cohort::dtensor
