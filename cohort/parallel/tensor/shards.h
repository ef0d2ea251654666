/// Shards and full tensors of a layer's parameters, of which each rank of a group has a shard, according to a Shard, or a
/// replica.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "cohort/mesh/placement.h"
#include "cohort/parallel/tensor/group_place.h"

namespace cohort::parallel {

/// Returns this rank's shard of `full` of the group's rank 0, and notes it (noted_shard_spec()). Returns `full` itself if the
/// rank is alone. Collective.
at::Tensor scatter_parameter(const at::Tensor& full, const Placement& placement, const GroupPlace& place);
/// Returns the full parameter of `sizes`, of which this rank has `own`, in new memory, without autograd. Collective.
at::Tensor gather_parameter(const at::Tensor& own, const Placement& placement, const std::vector<int64_t>& sizes,
                            const GroupPlace& place);
/// Copies this rank's shard of `full` into `own`, of a parameter of `sizes`. Local. Throws c10::ValueError, with `name`, for a
/// shape other than `sizes`, and if fully_shard has sharded `own`.
void load_shard(const at::Tensor& own, const at::Tensor& full, const Placement& placement,
                const std::vector<int64_t>& sizes, const GroupPlace& place, const char* name);

}  // namespace cohort::parallel
