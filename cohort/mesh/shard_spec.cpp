#include "cohort/mesh/shard_spec.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "cohort/mesh/mesh_layout.h"

namespace cohort::mesh {
namespace {

// "sum" and "avg" can be reduced in any order; other pairs cannot.
void check_reductions(const Placements& placements) {
  std::set<std::string> ops;
  for (const auto& placement : placements) {
    if (placement.is_partial()) ops.insert("'" + placement.reduce_op() + "'");
  }
  TORCH_CHECK_VALUE(ops.size() <= 1 || ops == std::set<std::string>({"'sum'", "'avg'"}),
                    "Mixed Partial reduce types are not supported in the same placement list. Found reduce ops: {",
                    c10::Join(", ", std::vector<std::string>(ops.begin(), ops.end())),
                    "}. All Partial placements must use the same reduce op.");
}

std::vector<int64_t> iota_order(size_t size) {
  std::vector<int64_t> falling(size);
  std::iota(falling.rbegin(), falling.rend(), 0);
  return falling;
}

}  // namespace

ShardSpec::ShardSpec(DeviceMesh mesh, const Placements& placements, std::vector<int64_t> shape, c10::ScalarType dtype,
                     std::vector<int64_t> stride)
    : mesh_(std::move(mesh)), shape_(std::move(shape)), stride_(std::move(stride)), dtype_(dtype) {
  TORCH_CHECK_VALUE(static_cast<int64_t>(placements.size()) == mesh_.ndim(),
                    "`placements` must have the same length as `device_mesh.ndim`! Found placements length: ",
                    placements.size(), ", and device_mesh.ndim: ", mesh_.ndim(), ".");
  check_reductions(placements);
  placements_ = normalize_placements(placements, static_cast<int64_t>(shape_.size()));
  if (stride_.empty()) stride_ = compute_local_stride(iota_order(shape_.size()), shape_);
  TORCH_CHECK_VALUE(stride_.size() == shape_.size(), "[cohort] Expected a stride per dimension, but found ",
                    stride_.size(), " strides and ", shape_.size(), " dimensions.");
}

LocalShard ShardSpec::local_shard() const {
  if (!mesh_.coordinate()) return {.shape = {0}, .offset = {}};
  return local_shard_at(*mesh_.coordinate());
}

LocalShard ShardSpec::local_shard_at(const std::vector<int64_t>& coordinate) const {
  return compute_local_shape_and_global_offset(shape_, mesh_.shape(), coordinate, placements_);
}

std::vector<int64_t> ShardSpec::local_stride() const {
  if (!mesh_.coordinate()) return {1};
  return compute_local_stride(stride_, local_shape());
}

std::vector<IndexRanges> ShardSpec::held_ranges() const {
  if (!mesh_.coordinate()) return std::vector<IndexRanges>(shape_.size());
  return cohort::mesh::held_ranges(shape_, mesh_.shape(), *mesh_.coordinate(), placements_);
}

bool ShardSpec::is_empty() const {
  const auto shape = local_shape();
  return std::find(shape.begin(), shape.end(), 0) != shape.end();
}

int64_t ShardSpec::num_shards() const {
  int64_t count = 1;
  for (size_t dim = 0; dim < shape_.size(); ++dim) count *= num_shards(static_cast<int64_t>(dim));
  return count;
}

int64_t ShardSpec::num_shards(int64_t dim) const {
  int64_t count = 1;
  for (size_t axis = 0; axis < placements_.size(); ++axis) {
    const auto& placement = placements_[axis];
    if (placement.is_shard_like() && placement.dim() == dim) count *= mesh_.size(static_cast<int64_t>(axis));
  }
  return count;
}

bool ShardSpec::is_replicated() const {
  return std::all_of(placements_.begin(), placements_.end(), [](const auto& one) { return one.is_replicate(); });
}

bool ShardSpec::is_partial() const {
  return std::any_of(placements_.begin(), placements_.end(), [](const auto& one) { return one.is_partial(); });
}

int64_t ShardSpec::num_sharded_axes() const {
  return std::count_if(placements_.begin(), placements_.end(), [](const auto& one) { return one.is_shard_like(); });
}

std::string ShardSpec::to_string() const {
  return c10::str("ShardSpec(mesh=", mesh_, ", placements=", cohort::to_string(placements_),
                  ", shape=", mesh::tuple_text(shape_), ", stride=", mesh::tuple_text(stride_),
                  ", dtype=", c10::toString(dtype_), ")");
}

}  // namespace cohort::mesh
