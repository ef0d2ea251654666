/// Where a cut of a dimension lands when a tensor is given another shape with the same elements in the same order. Pure.
#pragma once

#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <optional>

#include "cohort/export.h"
#include "cohort/mesh/placement.h"

namespace cohort::dtensor {

/// `cut`: a shard of a tensor of the sizes `from`, over `num_ranks`. The placement in the sizes `to` by which every rank has
/// the same
/// elements in the same order; nothing where there is none.
///
/// Dimensions that are joined keep the cut of the first of them; a later one becomes a StridedShard, a piece for each index
/// before
/// it, and such a one a plain Shard again when they are split.
COHORT_TEST_API std::optional<Placement> viewed(const Placement& cut, c10::IntArrayRef from, c10::IntArrayRef to,
                                                int64_t num_ranks);

/// The same for all axes of a mesh, one after the other, each on what those before it have left: of the tensor's placements those
/// that can be kept, else Replicate(), and the placements of the view.
struct ViewedPlacements {
  Placements kept, viewed;
};
COHORT_TEST_API ViewedPlacements viewed(const Placements& placements, c10::IntArrayRef from, c10::IntArrayRef to,
                                        c10::IntArrayRef mesh_shape);

}  // namespace cohort::dtensor
