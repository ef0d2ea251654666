#include "cohort/mesh/shard.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <numeric>

namespace cohort::mesh {
namespace {

// Appends `range`, or extends the last range if `range` begins at its end.
void append_range(IndexRanges& ranges, IndexRange range) {
  if (range.size() <= 0) return;
  if (!ranges.empty() && ranges.back().end == range.begin) {
    ranges.back().end = range.end;
  } else {
    ranges.push_back(range);
  }
}

// Returns the indices that `local` selects from `held`; `local` counts the indices of `held` one after the other.
IndexRanges select_ranges(const IndexRanges& held, const IndexRanges& local) {
  IndexRanges result;
  for (const auto& wanted : local) {
    int64_t passed = 0;
    for (const auto& range : held) {
      const int64_t begin = std::max(wanted.begin, passed);
      const int64_t end = std::min(wanted.end, passed + range.size());
      append_range(result, {range.begin + begin - passed, range.begin + end - passed});
      passed += range.size();
    }
  }
  return result;
}

}  // namespace

IndexRange chunk_range(int64_t size, int64_t num_chunks, int64_t index) {
  TORCH_CHECK_VALUE(size >= 0, "[cohort] Expected size >= 0, got ", size);
  TORCH_CHECK_VALUE(num_chunks > 0, "Expected num_chunks > 0, got ", num_chunks);
  TORCH_CHECK_VALUE(index >= 0 && index < num_chunks, "[cohort] Expected 0 <= index < num_chunks, got ", index, " of ",
                    num_chunks);
  const int64_t full = (size + num_chunks - 1) / num_chunks;
  const int64_t begin = std::min(size, full * index);
  return {begin, std::min(size, begin + full)};
}

IndexRanges shard_ranges(const Placement& placement, int64_t size, int64_t num_chunks, int64_t index) {
  const int64_t num_pieces = placement.split_factor();
  TORCH_CHECK_VALUE(num_pieces > 0, "[cohort] Expected split_factor > 0, got ", num_pieces);
  IndexRanges ranges;
  for (int64_t i = 0; i < num_pieces; ++i) {
    const auto piece = chunk_range(size, num_pieces, i);
    const auto chunk = chunk_range(piece.size(), num_chunks, index);
    append_range(ranges, {piece.begin + chunk.begin, piece.begin + chunk.end});
  }
  return ranges;
}

int64_t padded_shard_size(const Placement& placement, int64_t size, int64_t num_chunks) {
  return num_indices(shard_ranges(placement, size, num_chunks, 0));
}

std::vector<IndexRanges> held_ranges(c10::IntArrayRef global_shape, c10::IntArrayRef mesh_shape,
                                     c10::IntArrayRef coordinate, const Placements& placements) {
  TORCH_CHECK_VALUE(placements.size() == mesh_shape.size() && coordinate.size() == mesh_shape.size(),
                    "[cohort] Expected one placement and one coordinate per mesh dim, but found ", placements.size(),
                    " placements, ", coordinate.size(), " coordinates and ", mesh_shape.size(), " mesh dims.");
  std::vector<IndexRanges> held(global_shape.size());
  for (size_t dim = 0; dim < held.size(); ++dim) append_range(held[dim], {0, global_shape[dim]});
  const auto normal = normalize_placements(placements, static_cast<int64_t>(global_shape.size()));
  for (size_t axis = 0; axis < normal.size(); ++axis) {
    if (!normal[axis].is_shard_like()) continue;
    auto& ranges = held[normal[axis].dim()];
    ranges = select_ranges(ranges, shard_ranges(normal[axis], num_indices(ranges), mesh_shape[axis], coordinate[axis]));
  }
  return held;
}

LocalShard compute_local_shape_and_global_offset(c10::IntArrayRef global_shape, c10::IntArrayRef mesh_shape,
                                                 c10::IntArrayRef coordinate, const Placements& placements) {
  const auto held = held_ranges(global_shape, mesh_shape, coordinate, placements);
  const auto normal = normalize_placements(placements, static_cast<int64_t>(global_shape.size()));
  LocalShard part;
  for (size_t dim = 0; dim < held.size(); ++dim) {
    const bool is_sharded = std::any_of(normal.begin(), normal.end(), [&](const auto& placement) {
      return placement.is_shard_like() && placement.dim() == static_cast<int64_t>(dim);
    });
    part.shape.push_back(num_indices(held[dim]));
    part.offset.push_back(!is_sharded ? 0 : held[dim].empty() ? global_shape[dim] : held[dim].front().begin);
  }
  return part;
}

std::vector<int64_t> compute_local_stride(c10::IntArrayRef global_stride, c10::IntArrayRef local_shape) {
  TORCH_CHECK_VALUE(global_stride.size() == local_shape.size(), "[cohort] Expected a stride per dimension, but found ",
                    global_stride.size(), " strides and ", local_shape.size(), " dimensions.");
  std::vector<size_t> order(global_stride.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return global_stride[a] > global_stride[b]; });
  std::vector<int64_t> strides(order.size());
  int64_t stride = 1;
  for (size_t i = order.size(); i-- > 0;) {
    strides[order[i]] = stride;
    stride *= local_shape[order[i]];
  }
  return strides;
}

at::Tensor pad_tensor(const at::Tensor& tensor, int64_t dim, int64_t num_padding) {
  if (num_padding == 0) return tensor;
  auto shape = tensor.sizes().vec();
  shape.at(dim) = num_padding;
  return at::cat({tensor, tensor.new_zeros(shape)}, dim);
}

at::Tensor unpad_tensor(const at::Tensor& tensor, int64_t dim, int64_t num_padding) {
  return num_padding == 0 ? tensor : tensor.narrow(dim, 0, tensor.size(dim) - num_padding);
}

at::Tensor take_ranges(const at::Tensor& tensor, int64_t dim, const IndexRanges& ranges) {
  if (ranges.empty()) return tensor.narrow(dim, 0, 0);
  std::vector<at::Tensor> parts;
  for (const auto& range : ranges) parts.push_back(tensor.narrow(dim, range.begin, range.size()));
  return parts.size() == 1 ? parts.front() : at::cat(parts, dim);
}

}  // namespace cohort::mesh
