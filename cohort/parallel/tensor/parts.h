/// A layer's parameters, which the ranks of a group have in parts, as a Shard says, or each of them all of it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "cohort/mesh/placement.h"
#include "cohort/parallel/tensor/group_place.h"

namespace cohort::parallel {

/// Collective: what this rank has of the group's rank 0's `whole`, which is noted of it (part_spec()). `whole` itself where the
/// rank is alone.
at::Tensor shared_out(const at::Tensor& whole, const Placement& placement, const GroupPlace& place);
/// Collective: all of a parameter of `sizes`, of which this rank has `own`, in new memory, without autograd.
at::Tensor put_together(const at::Tensor& own, const Placement& placement, const std::vector<int64_t>& sizes,
                        const GroupPlace& place);
/// Local: copies this rank's part of `whole` into `own`, of a parameter of `sizes`. Throws c10::ValueError, with `name`, for
/// another shape than that, and where fully_shard has taken `own`.
void load_part(const at::Tensor& own, const at::Tensor& whole, const Placement& placement,
               const std::vector<int64_t>& sizes, const GroupPlace& place, const char* name);

}  // namespace cohort::parallel
