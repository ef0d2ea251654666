#include "cohort/parallel/context/sequence_layout.h"

#include <ATen/ATen.h>
#include <c10/core/WrapDimMinimal.h>
#include <c10/util/Exception.h>

#include <vector>

#include "cohort/parallel/tensor/division.h"
#include "cohort/parallel/tensor/regions.h"

namespace cohort {
namespace parallel {

void check_length(int64_t length, int64_t dim, SequenceLayout layout, int64_t num_ranks) {
  const bool is_balanced = layout == SequenceLayout::kHeadTail;
  const auto parts = is_balanced ? 2 * num_ranks : num_ranks;
  if (num_ranks == 1 || (length > 0 && length % parts == 0)) return;
  TORCH_CHECK_VALUE(false, "[cohort] context parallel: a sequence of ", length, " positions (dimension ", dim,
                    ") cannot be shared evenly by ", ranks_text(num_ranks), ": ",
                    is_balanced
                        ? "with load balance each has a part from the head and one from the tail, so there are 2 * " +
                              std::to_string(num_ranks) + " = " + std::to_string(parts) + " parts, and "
                        : std::string(),
                    length, " mod ", parts, " = ", length % parts, "\n  hint: pad it to ", (length / parts + 1) * parts,
                    " positions");
}

at::Tensor in_order_of_ranks(const at::Tensor& whole, int64_t dim, SequenceLayout layout, int64_t num_ranks) {
  if (layout == SequenceLayout::kContiguous || num_ranks == 1) return whole;
  const auto order = sequence_order(whole.size(dim), num_ranks, layout);
  return whole.index_select(dim, order.to(whole.device()));
}

at::Tensor in_order_of_sequence(const at::Tensor& shards, int64_t dim, SequenceLayout layout, int64_t num_ranks) {
  if (layout == SequenceLayout::kContiguous || num_ranks == 1) return shards;
  const auto order = sequence_order(shards.size(dim), num_ranks, layout);
  return shards.index_select(dim, order.argsort().to(shards.device()));
}

}  // namespace parallel

at::Tensor sequence_order(int64_t length, int64_t num_ranks, SequenceLayout layout) {
  parallel::check_length(length, 0, layout, num_ranks);
  const auto positions = at::arange(length, at::kLong);
  if (layout == SequenceLayout::kContiguous) return positions;
  const auto parts = positions.view({2, num_ranks, -1});
  return at::stack({parts[0], parts[1].flip(0)}, 1).view({length});
}

at::Tensor shard_sequence(const at::Tensor& whole, int64_t dim, SequenceLayout layout, const Group& group) {
  const auto wrapped = c10::maybe_wrap_dim(dim, whole.dim(), /*wrap_scalar=*/false);
  const auto place = parallel::place_in(group);
  const auto length = whole.size(wrapped);
  parallel::check_length(length, wrapped, layout, place.num_ranks);
  const auto own = length / place.num_ranks;
  if (layout == SequenceLayout::kContiguous || place.num_ranks == 1) {
    return whole.narrow(wrapped, place.rank * own, own).clone(at::MemoryFormat::Contiguous);
  }
  const auto half = own / 2;
  return at::cat(
      {whole.narrow(wrapped, place.rank * half, half), whole.narrow(wrapped, length - (place.rank + 1) * half, half)},
      wrapped);
}

at::Tensor unshard_sequence(const at::Tensor& part, int64_t dim, SequenceLayout layout, const Group& group) {
  const auto wrapped = c10::maybe_wrap_dim(dim, part.dim(), /*wrap_scalar=*/false);
  const auto place = parallel::place_in(group);
  parallel::check_length(part.size(wrapped) * place.num_ranks, wrapped, layout, place.num_ranks);
  const auto shards = gather_from_region(part, wrapped, {.group = group});
  return parallel::in_order_of_sequence(shards, wrapped, layout, place.num_ranks);
}

}  // namespace cohort
