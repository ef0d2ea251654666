#include "cohort/parallel/context/sequence_layout.h"

#include <ATen/ATen.h>
#include <c10/core/WrapDimMinimal.h>

#include "cohort/parallel/context/sequence_shards.h"
#include "cohort/parallel/tensor/group_place.h"
#include "cohort/parallel/tensor/regions.h"

namespace cohort::parallel {
at::Tensor sequence_order(int64_t length, int64_t num_ranks, SequenceLayout layout) {
  parallel::check_length(length, 0, layout, num_ranks);
  auto positions = at::arange(length, at::kLong);
  if (layout == SequenceLayout::kContiguous) return positions;
  const auto parts = positions.view({2, num_ranks, -1});
  return at::stack({parts[0], parts[1].flip(0)}, 1).view({length});
}

at::Tensor shard_sequence(const at::Tensor& full, int64_t dim, SequenceLayout layout, const Group& group) {
  const auto wrapped = c10::maybe_wrap_dim(dim, full.dim(), /*wrap_scalar=*/false);
  const auto place = parallel::place_in(group);
  const auto length = full.size(wrapped);
  parallel::check_length(length, wrapped, layout, place.num_ranks);
  const auto own = length / place.num_ranks;
  if (layout == SequenceLayout::kContiguous || place.num_ranks == 1) {
    return full.narrow(wrapped, place.rank * own, own).clone(at::MemoryFormat::Contiguous);
  }
  const auto half = own / 2;
  return at::cat(
      {full.narrow(wrapped, place.rank * half, half), full.narrow(wrapped, length - (place.rank + 1) * half, half)},
      wrapped);
}

at::Tensor unshard_sequence(const at::Tensor& part, int64_t dim, SequenceLayout layout, const Group& group) {
  const auto wrapped = c10::maybe_wrap_dim(dim, part.dim(), /*wrap_scalar=*/false);
  const auto place = parallel::place_in(group);
  parallel::check_length(part.size(wrapped) * place.num_ranks, wrapped, layout, place.num_ranks);
  const auto shards = gather_from_region(part, wrapped, {.group = group});
  return parallel::in_order_of_sequence(shards, wrapped, layout, place.num_ranks);
}

}  // namespace cohort::parallel
