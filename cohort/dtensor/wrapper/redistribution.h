/// Redistribution: brings a local tensor to other placements on the same mesh, by collectives along one axis after the other.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>

#include "cohort/dtensor/wrapper/wrapper.h"

namespace cohort::dtensor {

/// Redistributes `local`, of a tensor of global `sizes`, from the placements `from` to `to`. Returns `local` itself if they are
/// equal. Collective over the mesh. Requires: this rank is in the mesh; dims are counted from the front. For a new Partial, the
/// first rank of the axis has the value, and the others have neutral elements.
at::Tensor redistributed(const at::Tensor& local, const DeviceMesh& mesh, const Placements& from, const Placements& to,
                         c10::IntArrayRef sizes);

/// Returns roughly the bytes that a rank sends on one axis of `num_ranks` for this; the tensor has `num_bytes`. 0 means no
/// communication.
double redistribution_cost(const Placement& from, const Placement& to, int64_t num_ranks, double num_bytes);

}  // namespace cohort::dtensor
