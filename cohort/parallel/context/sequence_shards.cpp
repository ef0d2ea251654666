#include "cohort/parallel/context/sequence_shards.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <string>

#include "cohort/parallel/tensor/group_place.h"

namespace cohort::parallel {

void check_length(int64_t length, int64_t dim, SequenceLayout layout, int64_t num_ranks) {
  const bool is_balanced = layout == SequenceLayout::kHeadTail;
  const auto parts = is_balanced ? 2 * num_ranks : num_ranks;
  if (num_ranks == 1 || (length > 0 && length % parts == 0)) return;
  TORCH_CHECK_VALUE(false, "[cohort] context parallel: a sequence of ", length, " positions (dimension ", dim,
                    ") cannot be divided evenly among ", ranks_text(num_ranks), ": ",
                    is_balanced
                        ? "with load balancing each has a part from the head and one from the tail, so there are 2 * " +
                              std::to_string(num_ranks) + " = " + std::to_string(parts) + " parts, and "
                        : std::string(),
                    length, " mod ", parts, " = ", length % parts, "\n  hint: pad it to ", (length / parts + 1) * parts,
                    " positions");
}

at::Tensor in_order_of_ranks(const at::Tensor& full, int64_t dim, SequenceLayout layout, int64_t num_ranks) {
  if (layout == SequenceLayout::kContiguous || num_ranks == 1) return full;
  const auto order = sequence_order(full.size(dim), num_ranks, layout);
  return full.index_select(dim, order.to(full.device()));
}

at::Tensor in_order_of_sequence(const at::Tensor& shards, int64_t dim, SequenceLayout layout, int64_t num_ranks) {
  if (layout == SequenceLayout::kContiguous || num_ranks == 1) return shards;
  const auto order = sequence_order(shards.size(dim), num_ranks, layout);
  return shards.index_select(dim, order.argsort().to(shards.device()));
}

}  // namespace cohort::parallel
