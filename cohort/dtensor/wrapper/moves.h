/// A tensor in parts brought into other placements on the same mesh: which collectives, in which order.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>

#include "cohort/dtensor/wrapper/wrapper.h"

namespace cohort::dtensor {

/// Collective over the mesh: `local` in the placements `to`, of a tensor of `sizes` in the placements `from`; `local` itself
/// where they are equal. Requires: this rank is in the mesh; dims are counted from the front. What becomes Partial
/// lies on the first rank of the axis, and on the others what changes nothing.
at::Tensor moved(const at::Tensor& local, const DeviceMesh& mesh, const Placements& from, const Placements& to,
                 c10::IntArrayRef sizes);

/// What one axis of `num_ranks` pays for it, in bytes that a rank sends, about; the tensor has `num_bytes`. 0: no communication.
double price_of(const Placement& from, const Placement& to, int64_t num_ranks, double num_bytes);

}  // namespace cohort::dtensor
