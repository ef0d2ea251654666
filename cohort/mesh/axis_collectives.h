/// Collectives that change a tensor's placement along one axis of a mesh, or in a group; placements on other axes stay. "The full
/// tensor" here has everything that the other axes leave to this one. Autograd does not see these functions. All results are
/// contiguous. DTensors and tensor-parallel regions (parallel/tensor/regions.h) use them.
///
/// Collective over the axis, except own_shard. Requires: this rank is in the mesh.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cohort/mesh/device_mesh.h"
#include "cohort/mesh/placement.h"

namespace cohort::mesh {

/// One axis of a mesh, or a group whose ranks are in the axis' order, and this rank's index on it.
class AxisOf {
 public:
  /// Keeps a reference to `mesh`.
  AxisOf(const DeviceMesh& mesh, int64_t axis) : mesh_(&mesh), axis_(axis) {}
  explicit AxisOf(Group group) : group_(std::move(group)) {}

  Group group() const { return mesh_ ? mesh_->group(axis_) : group_; }
  int64_t num_ranks() const { return mesh_ ? mesh_->size(axis_) : group_->getSize(); }
  int64_t own_index() const { return mesh_ ? (*mesh_->coordinate())[axis_] : group_->getRank(); }
  /// Returns the index on the axis of each of the group's ranks.
  std::vector<int64_t> order() const;

 private:
  const DeviceMesh* mesh_ = nullptr;
  int64_t axis_ = 0;
  Group group_ = {};
};

/// Gathers the full tensor from the shards: `size` elements along the placement's dim, of which `local` has this rank's.
at::Tensor gather_axis(const AxisOf& line, const Placement& shard, const at::Tensor& local, int64_t size);
/// Returns this rank's shard of `full`, a copy. Local.
at::Tensor own_shard(const AxisOf& line, const Placement& shard, const at::Tensor& full);
/// Reduces all ranks' tensors with the operation of a Partial, to new memory.
/// Throws c10::ValueError for an unknown operation.
at::Tensor reduce_axis(const AxisOf& line, const std::string& reduce_op, const at::Tensor& local);
/// Returns this rank's shard of the reduction.
at::Tensor reduce_scatter_axis(const AxisOf& line, const std::string& reduce_op, const Placement& shard,
                               const at::Tensor& local);
/// Changes a shard of one dim to a shard of another with an all-to-all. `size`: the elements along the dim of `from`.
at::Tensor exchange_axis(const AxisOf& line, const Placement& from, const Placement& to, const at::Tensor& local,
                         int64_t size);

}  // namespace cohort::mesh
