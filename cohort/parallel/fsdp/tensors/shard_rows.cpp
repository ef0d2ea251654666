#include "cohort/parallel/fsdp/tensors/shard_rows.h"

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/parallel/module/purpose.h"

namespace cohort::fsdp {
namespace {

// Gathers and scatters need equal parts: ranks with fewer rows add rows that nobody reads.
at::Tensor with_rows(const at::Tensor& part, int64_t rows) {
  if (part.size(0) == rows) return part.contiguous();
  auto sizes = part.sizes().vec();
  sizes.front() = rows;
  auto padded = at::zeros(sizes, part.options());
  padded.narrow(0, 0, part.size(0)).copy_(part);
  return padded;
}

}  // namespace

ShardRows rows_of_ranks(const at::Tensor& own, int64_t dim, const Group& group) {
  const comm::CalledFor purpose(parallel::kStateExchange);
  const auto options = at::TensorOptions(at::kLong).device(own.device());
  const auto count = at::full({1}, own.size(dim), options);
  const auto all = at::empty({group->getSize()}, options);
  all_gather_single(all, count, {.group = group});
  const auto on_host = all.cpu();
  const auto* const counts = on_host.const_data_ptr<int64_t>();
  return {dim, {counts, counts + on_host.numel()}};
}

at::Tensor gather_shards(const at::Tensor& own, const ShardRows& rows, const Group& group) {
  const at::NoGradGuard no_grad;
  const auto& counts = rows.counts;
  const bool is_first = group->getRank() == 0;
  const auto part = with_rows(own.detach().movedim(rows.dim, 0), *std::max_element(counts.begin(), counts.end()));
  TensorList parts;
  if (is_first) {
    for (size_t rank = 0; rank < counts.size(); ++rank) parts.push_back(at::empty_like(part));
  }
  const comm::CalledFor purpose(parallel::kStateExchange);
  if (part.numel() > 0) gather(part, parts, group_rank(0), {.group = group});
  if (!is_first) return {};
  for (size_t rank = 0; rank < counts.size(); ++rank) parts[rank] = parts[rank].narrow(0, 0, counts[rank]);
  return at::cat(parts).movedim(0, rows.dim).contiguous();
}

at::Tensor scatter_shards(const at::Tensor& full, const at::Tensor& like, const ShardRows& rows, const Group& group) {
  const at::NoGradGuard no_grad;
  const auto& counts = rows.counts;
  const auto own = at::zeros(like.sizes(), like.options().requires_grad(false)).movedim(rows.dim, 0);
  const auto most = *std::max_element(counts.begin(), counts.end());
  const auto part = with_rows(own, most);
  TensorList parts;
  if (group->getRank() == 0) {
    const auto values = full.detach().to(like.options()).movedim(rows.dim, 0);
    int64_t begin = 0;
    for (const auto count : counts) {
      parts.push_back(with_rows(values.narrow(0, begin, count), most));
      begin += count;
    }
  }
  const comm::CalledFor purpose(parallel::kStateExchange);
  if (part.numel() > 0) scatter(part, parts, group_rank(0), {.group = group});
  return part.narrow(0, 0, own.size(0)).movedim(0, rows.dim).clone(at::MemoryFormat::Contiguous);
}

}  // namespace cohort::fsdp
