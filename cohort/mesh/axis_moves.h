/// A tensor's moves along one axis of a mesh, or in a group: from one placement on it to another, whatever other axes do. What
/// they have left of the tensor is "the whole" here. Values only: autograd knows nothing of it. All results are contiguous.
/// DTensors and tensor-parallel regions (parallel/tensor/regions.h) are moved by these.
///
/// Collective over the axis, except own_part. Requires: this rank is in the mesh.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cohort/mesh/device_mesh.h"
#include "cohort/mesh/placement.h"

namespace cohort::mesh {

/// One axis of a mesh, or a group whose ranks stand in its order, and this rank's place on it.
class AxisOf {
 public:
  /// Keeps a reference to `mesh`.
  AxisOf(const DeviceMesh& mesh, int64_t axis) : mesh_(&mesh), axis_(axis) {}
  explicit AxisOf(Group group) : group_(std::move(group)) {}

  Group group() const { return mesh_ ? mesh_->group(axis_) : group_; }
  int64_t num_ranks() const { return mesh_ ? mesh_->size(axis_) : group_->getSize(); }
  int64_t own_index() const { return mesh_ ? (*mesh_->coordinate())[axis_] : group_->getRank(); }
  /// The place on the axis of each of the group's ranks.
  std::vector<int64_t> order() const;

 private:
  const DeviceMesh* mesh_ = nullptr;
  int64_t axis_ = 0;
  Group group_ = {};
};

/// A shard's parts put together: `size` elements along the placement's dim, of which `local` has this rank's.
at::Tensor gather_axis(const AxisOf& line, const Placement& shard, const at::Tensor& local, int64_t size);
/// This rank's part of `whole`. Local; a copy.
at::Tensor own_part(const AxisOf& line, const Placement& shard, const at::Tensor& whole);
/// The reduction of all ranks' tensors by a Partial's operation; new memory.
/// Throws c10::ValueError for an operation that is not known.
at::Tensor reduce_axis(const AxisOf& line, const std::string& reduce_op, const at::Tensor& local);
/// This rank's part of the reduction.
at::Tensor reduce_scatter_axis(const AxisOf& line, const std::string& reduce_op, const Placement& shard,
                               const at::Tensor& local);
/// From a shard of one dim to one of another, by an all-to-all: `size` elements along the dim of `from`.
at::Tensor exchange_axis(const AxisOf& line, const Placement& from, const Placement& to, const at::Tensor& local,
                         int64_t size);

}  // namespace cohort::mesh
