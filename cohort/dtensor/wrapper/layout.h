/// How tensors lie: a mesh, and a placement on each of its axes. Tensors share one object where they can, as each result of an
/// operation would else copy both.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cohort/mesh/device_mesh.h"
#include "cohort/mesh/placement.h"

namespace cohort::dtensor {

struct Layout {
  Layout(DeviceMesh mesh, Placements placements);

  const DeviceMesh mesh;
  const Placements placements;
  /// The mesh's shape and the placements as numbers: equal where both are equal. Rules ask for no more.
  const std::vector<int64_t> code;
  const bool is_partial;  ///< on any axis
};

using LayoutPtr = std::shared_ptr<const Layout>;

/// A Partial on any of the axes.
bool has_partial(const Placements& placements);

}  // namespace cohort::dtensor
