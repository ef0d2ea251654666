/// Layout: a mesh, and a placement on each of its axes. Tensors share one object if possible, because otherwise each result of an
/// operation would copy both.
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
  /// The mesh's shape and the placements as numbers: equal if both are equal. Rules need no more than this.
  const std::vector<int64_t> code;
  const bool is_partial;  ///< whether a placement is Partial
};

using LayoutPtr = std::shared_ptr<const Layout>;

/// Whether a placement is Partial.
bool has_partial(const Placements& placements);

}  // namespace cohort::dtensor
