/// Shards and full tensors of a layer's parameters, of which each rank of a group has a shard, according to a Shard, or a
/// replica.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "cohort/mesh/placement.h"
#include "cohort/parallel/tensor/group_place.h"

namespace cohort::parallel {

/// Returns this rank's part of `whole` of the group's rank 0, and notes it (part_spec()). Returns `whole` itself if the rank is
/// alone. Collective.
at::Tensor shared_out(const at::Tensor& whole, const Placement& placement, const GroupPlace& place);
/// Returns the full parameter of `sizes`, of which this rank has `own`, in new memory, without autograd. Collective.
at::Tensor put_together(const at::Tensor& own, const Placement& placement, const std::vector<int64_t>& sizes,
                        const GroupPlace& place);
/// Copies this rank's part of `whole` into `own`, of a parameter of `sizes`. Local. Throws c10::ValueError, with `name`, for a
/// shape other than `sizes`, and if fully_shard has sharded `own`.
void load_part(const at::Tensor& own, const at::Tensor& whole, const Placement& placement,
               const std::vector<int64_t>& sizes, const GroupPlace& place, const char* name);

}  // namespace cohort::parallel
