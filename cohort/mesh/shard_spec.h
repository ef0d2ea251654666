/// ShardSpec: a tensor that lies in parts on a mesh, described without its data: what state dicts, checkpoints,
/// optimizers and clipping ask about a parameter. With the data: DTensor (dtensor/api/dtensor.h).
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

namespace cohort {

class COHORT_API ShardSpec {
 public:
  /// `placements`: one per axis of the mesh; `shape` and `stride` are those of the whole tensor, and without a stride
  /// it is contiguous.
  /// Throws c10::ValueError for another number of placements, c10::IndexError for a dim that the tensor does not have,
  /// c10::ValueError for Partials of different reductions, other than "sum" with "avg".
  ShardSpec(DeviceMesh mesh, const Placements& placements, std::vector<int64_t> shape, c10::ScalarType dtype,
            std::vector<int64_t> stride = {});

  const DeviceMesh& mesh() const { return mesh_; }
  /// With dims counted from the front.
  const Placements& placements() const { return placements_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  const std::vector<int64_t>& stride() const { return stride_; }
  c10::ScalarType dtype() const { return dtype_; }

  /// This rank's part. Shape (0) and no offset, as in PyTorch, on a rank that the mesh does not have.
  LocalPart local_part() const;
  std::vector<int64_t> local_shape() const { return local_part().shape; }
  std::vector<int64_t> local_stride() const;
  /// This rank's indices along each dimension, for parts with gaps too; empty on a rank that the mesh does not have.
  std::vector<IndexRanges> held_ranges() const;
  /// The same of the rank at `coordinate`.
  LocalPart local_part_at(const std::vector<int64_t>& coordinate) const;
  /// True if this rank's part has no elements.
  bool is_empty() const;

  /// Into how many parts the tensor is cut, empty ones included; of one dimension.
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

}  // namespace cohort
