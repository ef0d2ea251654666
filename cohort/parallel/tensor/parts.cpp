#include "cohort/parallel/tensor/parts.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/mesh/shard.h"
#include "cohort/parallel/module/sharded_tensors.h"
#include "cohort/parallel/tensor/regions.h"

namespace cohort::parallel {

Part part_of(int64_t dim, int64_t size, const GroupPlace& place) {
  const auto range = chunk_range(size, place.num_ranks, place.rank);
  return {dim, size, range.begin, range.size()};
}

void note_part(const at::Tensor& own, const Part& part, const GroupPlace& place) {
  if (place.group) note_cut(own, {place.group, part.dim, part.size});
}

void agree_on(const at::Tensor& whole, const GroupPlace& place) {
  if (place.group && whole.numel() > 0) broadcast(whole, group_rank(0), {.group = place.group});
}

at::Tensor take(const at::Tensor& whole, const Part& part) {
  return whole.narrow(part.dim, part.begin, part.length).clone(at::MemoryFormat::Contiguous);
}

at::Tensor put_together(const at::Tensor& own, const Part& part, const GroupPlace& place) {
  const at::NoGradGuard no_grad;
  if (!place.group) return own.clone(at::MemoryFormat::Contiguous);
  return gather_from_region(own, part.dim, {.group = place.group, .size = part.size}).contiguous();
}

void load_part(const at::Tensor& own, const at::Tensor& whole, const Part& part, const char* name) {
  auto expected = own.sizes().vec();
  expected[part.dim] = part.size;
  TORCH_CHECK_VALUE(whole.sizes() == c10::IntArrayRef(expected), "[cohort] the whole ", name, " has shape ",
                    c10::IntArrayRef(expected), ", but ", whole.sizes(), " was given");
  TORCH_CHECK_VALUE(!is_of_fully_shard(own), "[cohort] load_whole: fully_shard has taken the ", name,
                    "\n  hint: load before fully_shard, or afterwards by set_model_state_dict() with full_state_dict, "
                    "or by write() of the wrapper");
  const at::NoGradGuard no_grad;
  own.copy_(whole.narrow(part.dim, part.begin, part.length));
}

}  // namespace cohort::parallel
