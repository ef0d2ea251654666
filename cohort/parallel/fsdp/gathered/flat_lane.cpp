#include "cohort/parallel/fsdp/gathered/flat_lane.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "cohort/mesh/shard.h"

namespace cohort::fsdp {
namespace {

int64_t product(const std::vector<int64_t>& sizes, size_t begin, size_t end) {
  int64_t result = 1;
  for (size_t i = begin; i < end; ++i) result *= sizes[i];
  return result;
}

// For sharding along a dimension other than the first, which is even: (num_ranks, rows before, elements of a row).
at::Tensor by_rank(const at::Tensor& full, const Chunking& chunking) {
  const auto outer = product(chunking.sizes, 0, static_cast<size_t>(chunking.dim));
  return full.view({outer, chunking.num_ranks, -1}).transpose(0, 1);
}

// Calls `copy` with the parts of `rows` and of the flattened `full` that belong together: full chunks, then a short one.
template <class Copy>
void for_each_part(const at::Tensor& full, const Chunking& chunking, const at::Tensor& rows, Copy copy) {
  const auto chunk = chunking.chunk();
  const auto flat = full.view({-1});
  const auto num_full = flat.numel() / chunk;
  const auto rest = flat.numel() % chunk;
  if (num_full > 0) copy(rows.narrow(0, 0, num_full), flat.narrow(0, 0, num_full * chunk).view({num_full, chunk}));
  if (rest > 0) copy(rows[num_full].narrow(0, 0, rest), flat.narrow(0, num_full * chunk, rest));
}

void zero_padding(const Chunking& chunking, int64_t numel, const at::Tensor& rows) {
  const auto chunk = chunking.chunk();
  const auto num_full = numel / chunk;
  const auto rest = numel % chunk;
  if (rest > 0) rows[num_full].narrow(0, rest, chunk - rest).zero_();
  const auto num_used = num_full + (rest > 0 ? 1 : 0);
  if (num_used < chunking.num_ranks) rows.narrow(0, num_used, chunking.num_ranks - num_used).zero_();
}

}  // namespace

int64_t Chunking::chunk() const { return c10::multiply_integers(shard_sizes(0)); }

std::vector<int64_t> Chunking::shard_sizes(int rank) const {
  auto result = sizes;
  auto& size = result.at(static_cast<size_t>(dim));
  size = mesh::chunk_range(size, num_ranks, rank).size();
  return result;
}

std::vector<Lane> make_lanes(const std::vector<int64_t>& keys, const std::vector<int64_t>& chunks) {
  std::vector<int64_t> known;
  std::vector<Lane> lanes;
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto found = std::find(known.begin(), known.end(), keys[i]);
    const auto place = static_cast<size_t>(found - known.begin());
    if (found == known.end()) {
      known.push_back(keys[i]);
      lanes.emplace_back();
    }
    auto& lane = lanes[place];
    lane.members.push_back(i);
    lane.offsets.push_back(lane.width);
    lane.width += chunks[i];
  }
  return lanes;
}

void copy_to_rows(const at::Tensor& full, const Chunking& chunking, const at::Tensor& rows) {
  if (chunking.chunk() == 0) return;
  if (chunking.dim > 0) {
    const auto parts = by_rank(full, chunking);
    rows.view(parts.sizes()).copy_(parts);
    return;
  }
  for_each_part(full, chunking, rows, [](const at::Tensor& row, const at::Tensor& part) { row.copy_(part); });
  zero_padding(chunking, full.numel(), rows);
}

void copy_from_rows(const at::Tensor& rows, const Chunking& chunking, const at::Tensor& full) {
  if (chunking.chunk() == 0) return;
  if (chunking.dim > 0) {
    const auto parts = by_rank(full, chunking);
    parts.copy_(rows.view(parts.sizes()));
    return;
  }
  for_each_part(full, chunking, rows, [](const at::Tensor& row, const at::Tensor& part) { part.copy_(row); });
}

}  // namespace cohort::fsdp
