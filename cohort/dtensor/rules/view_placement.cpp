#include "cohort/dtensor/rules/view_placement.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <numeric>
#include <vector>

#include "cohort/mesh/shard.h"

namespace cohort::dtensor {
namespace {

int64_t product(c10::IntArrayRef sizes, size_t begin, size_t end) {
  return std::accumulate(sizes.begin() + begin, sizes.begin() + end, int64_t{1}, std::multiplies<>());
}

// Dimensions [from_begin, from_end) become [to_begin, to_end): the smallest groups with the same number of elements.
struct Group {
  size_t from_begin = 0, from_end = 0, to_begin = 0, to_end = 0;
};

std::optional<Group> group_of(size_t dim, c10::IntArrayRef from, c10::IntArrayRef to) {
  Group group;
  while (group.from_end < from.size() || group.to_end < to.size()) {
    group.from_begin = group.from_end;
    group.to_begin = group.to_end;
    int64_t before = group.from_end < from.size() ? from[group.from_end++] : 1;
    int64_t after = group.to_end < to.size() ? to[group.to_end++] : 1;
    while (before != after) {
      if (before < after ? group.from_end == from.size() : group.to_end == to.size()) return std::nullopt;
      (before < after ? before *= from[group.from_end++] : after *= to[group.to_end++]);
    }
    if (dim >= group.from_begin && dim < group.from_end) return group;
  }
  return std::nullopt;
}

// Whether an earlier axis has sharded a dimension that is joined with this one into shards of several sizes.
bool any_uneven(int64_t dim, c10::IntArrayRef from, c10::IntArrayRef to, const std::vector<bool>& is_uneven) {
  const auto group = group_of(static_cast<size_t>(dim), from, to);
  if (!group) return true;
  return std::any_of(is_uneven.begin() + static_cast<std::ptrdiff_t>(group->from_begin),
                     is_uneven.begin() + static_cast<std::ptrdiff_t>(group->from_end), [](bool one) { return one; });
}

// Returns the new index of a dimension that is neither joined nor split.
std::optional<int64_t> same_dim(int64_t dim, c10::IntArrayRef from, c10::IntArrayRef to) {
  const auto group = group_of(static_cast<size_t>(dim), from, to);
  if (!group || group->from_end - group->from_begin != 1 || group->to_end - group->to_begin != 1) return std::nullopt;
  return static_cast<int64_t>(group->to_begin);
}

}  // namespace

std::optional<Placement> viewed(const Placement& cut, c10::IntArrayRef from, c10::IntArrayRef to, int64_t num_ranks) {
  if (product(from, 0, from.size()) == 0) return std::nullopt;
  const auto dim = static_cast<size_t>(cut.dim());
  const auto group = group_of(dim, from, to);
  if (!group || from[dim] % cut.split_factor() != 0) return std::nullopt;
  // Within the group: the number of pieces, of which a rank has a chunk each, in units of several elements.
  const int64_t num_pieces = product(from, group->from_begin, dim) * cut.split_factor();
  const int64_t num_units = from[dim] / cut.split_factor();
  const int64_t unit = product(from, dim + 1, group->from_end);
  for (size_t to_dim = group->to_end; to_dim-- > group->to_begin;) {
    const int64_t before = product(to, group->to_begin, to_dim);
    if (num_pieces % before != 0 || to[to_dim] % (num_pieces / before) != 0) continue;
    const int64_t split_factor = num_pieces / before;
    const int64_t to_units = to[to_dim] / split_factor;
    if (to_units == 1 && num_units != 1) continue;
    const int64_t to_unit = product(to, to_dim + 1, group->to_end);
    if (to_unit != unit && (num_units % num_ranks != 0 || to_units % num_ranks != 0)) continue;
    return split_factor == 1 ? Placement(Shard(static_cast<int64_t>(to_dim)))
                             : Placement(StridedShard(static_cast<int64_t>(to_dim), split_factor));
  }
  return std::nullopt;
}

ViewedPlacements viewed(const Placements& placements, c10::IntArrayRef from, c10::IntArrayRef to,
                        c10::IntArrayRef mesh_shape) {
  ViewedPlacements result;
  auto from_left = from.vec(), to_left = to.vec();
  std::vector<bool> is_uneven(from.size());  // ranks are left with different sizes
  for (size_t axis = 0; axis < placements.size(); ++axis) {
    const auto& now = placements[axis];
    std::optional<Placement> there;
    if (!now.is_shard_like()) {
      there = now;
    } else if (!any_uneven(now.dim(), from, to, is_uneven)) {
      there = viewed(now, from_left, to_left, mesh_shape[axis]);
    } else if (const auto same = same_dim(now.dim(), from, to)) {
      there = now.is_shard() ? Placement(Shard(*same)) : Placement(StridedShard(*same, now.split_factor()));
    }
    result.kept.push_back(there ? now : Placement(Replicate()));
    result.viewed.push_back(there.value_or(Placement(Replicate())));
    if (!there || !now.is_shard_like()) continue;
    is_uneven[now.dim()] = is_uneven[now.dim()] || from_left[now.dim()] % (mesh_shape[axis] * now.split_factor()) != 0;
    from_left[now.dim()] = mesh::padded_shard_size(now, from_left[now.dim()], mesh_shape[axis]);
    to_left[there->dim()] = mesh::padded_shard_size(*there, to_left[there->dim()], mesh_shape[axis]);
  }
  return result;
}

}  // namespace cohort::dtensor
