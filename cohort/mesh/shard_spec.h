/// ShardSpec: describes a sharded tensor on a mesh without its data. State dicts, checkpoints, optimizers and gradient
/// clipping read it. With the data: DTensor (dtensor/api/dtensor.h).
///
/// A value. Local: everything is computed from the description. Follows torch/distributed/tensor/_dtensor_spec.py.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <vector>

#include "cohort/export.h"
#include "cohort/mesh/device_mesh.h"
#include "cohort/mesh/placement.h"
#include "cohort/mesh/shard.h"

namespace cohort::mesh {

class COHORT_API ShardSpec {
 public:
  /// `placements`: one per axis of the mesh. `shape`, `stride`: of the full tensor; if `stride` is empty, it is contiguous.
  /// Throws c10::ValueError for another number of placements, c10::IndexError for a dim that the tensor does not have,
  /// c10::ValueError for Partials of different reductions, other than "sum" with "avg".
  ShardSpec(DeviceMesh mesh, const Placements& placements, std::vector<int64_t> shape, c10::ScalarType dtype,
            std::vector<int64_t> stride = {});

  const DeviceMesh& mesh() const { return mesh_; }
  /// Returns the placements, with dims counted from the front.
  const Placements& placements() const { return placements_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  const std::vector<int64_t>& stride() const { return stride_; }
  c10::ScalarType dtype() const { return dtype_; }

  /// Returns this rank's shard. On a rank outside of the mesh: shape (0) and an empty offset, as in PyTorch.
  LocalShard local_shard() const;
  [[deprecated("use local_shard")]] LocalShard local_part() const { return local_shard(); }
  std::vector<int64_t> local_shape() const { return local_shard().shape; }
  std::vector<int64_t> local_stride() const;
  /// Returns this rank's indices along each dimension, also for shards with gaps; empty on a rank outside of the mesh.
  std::vector<IndexRanges> held_ranges() const;
  /// Returns the shard of the rank at `coordinate`.
  LocalShard local_shard_at(const std::vector<int64_t>& coordinate) const;
  /// Whether this rank's shard has no elements.
  bool is_empty() const;

  /// Returns the number of shards, including empty ones, of the tensor or of one dimension.
  int64_t num_shards() const;
  int64_t num_shards(int64_t dim) const;
  bool is_replicated() const;
  bool is_sharded() const { return num_sharded_axes() > 0; }
  bool is_partial() const;

  bool operator==(const ShardSpec&) const = default;
  std::string to_string() const;

 private:
  int64_t num_sharded_axes() const;

  DeviceMesh mesh_;
  Placements placements_;
  std::vector<int64_t> shape_;
  std::vector<int64_t> stride_;
  c10::ScalarType dtype_;
};

}  // namespace cohort::mesh

// Old names, until the next release.
namespace cohort {
using ShardSpec [[deprecated("use cohort::mesh::ShardSpec")]] = mesh::ShardSpec;
}  // namespace cohort
