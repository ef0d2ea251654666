/// A layer's parameters, of which each rank has a part.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "cohort/parallel/tensor/group_place.h"

namespace cohort::parallel {

/// A dimension of a whole tensor, and which of its indices this rank has.
struct Part {
  int64_t dim = 0;
  int64_t size = 0;  ///< of the whole
  int64_t begin = 0;
  int64_t length = 0;
};
Part part_of(int64_t dim, int64_t size, const GroupPlace& place);

/// Local: `own` is this rank's part, as clipping, checkpoints and fully_shard should know; not where the rank is alone.
void note_part(const at::Tensor& own, const Part& part, const GroupPlace& place);

/// Collective: overwrites `whole` with what the group's rank 0 has, in place.
void agree_on(const at::Tensor& whole, const GroupPlace& place);
/// Local: this rank's part, in new memory.
at::Tensor take(const at::Tensor& whole, const Part& part);
/// Collective: all parts together, in new memory, without autograd.
at::Tensor put_together(const at::Tensor& own, const Part& part, const GroupPlace& place);
/// Local: copies this rank's part of `whole` into `own`. Throws c10::ValueError, with `name`, for another shape than the whole's,
/// and where fully_shard has taken `own`.
void load_part(const at::Tensor& own, const at::Tensor& whole, const Part& part, const char* name);

}  // namespace cohort::parallel
