/// ParallelDims: the number of ranks for each kind of parallelism, validated, and the mesh with an axis for each.
///
///     const cohort::parallel::ParallelDims wanted{.dp_shard = -1, .tp = 2};
///     const auto dims = wanted.resolved(cohort::get_world_size());
///     const cohort::DeviceMesh mesh = dims.build_mesh("cpu");     // 8 ranks: (dp_shard=4, tp=2)
///     cohort::parallel::ColumnParallelLinear up(64, 256, cohort::parallel::ColumnParallelOptions{.group = mesh.group("tp")});
///
/// Names, order of axes and flattened meshes are those of torchtitan/distributed/parallel_dims.py.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cohort/export.h"
#include "cohort/mesh/device_mesh.h"

namespace cohort::parallel {

struct COHORT_API ParallelDims {
  /// Numbers of ranks. One of them may be -1: it gets the remaining ranks.
  int64_t dp_replicate = 1;  ///< replicas of the model, each with other data
  int64_t dp_shard = 1;      ///< shards of each parameter, with other data (FSDP)
  int64_t tp = 1;            ///< shards of each layer's computation (tensor parallelism)
  int64_t pp = 1;            ///< stages of the pipeline
  int64_t cp = 1;            ///< shards of each sequence (context parallelism)

  /// Returns the same numbers without -1. Local. Throws c10::ValueError, with the product, unless all are at least 1 and their
  /// product is `world_size`.
  ParallelDims resolved(int64_t world_size) const;

  /// Resolves for the default group, which it creates if necessary, and makes a mesh with the axes "pp", "dp_replicate",
  /// "dp_shard", "cp", "tp", in this order, without axes of one rank. If all have one rank, the mesh is ("dp_shard"=1). Also
  /// makes these flattened meshes, if they have an axis: "dp" (dp_replicate, dp_shard: ranks with other data), "dp_shard_cp"
  /// (dp_shard, cp: over which parameters are sharded), "dp_cp" (all three: over which a loss is summed). Collective.
  /// Throws as resolved() and init_device_mesh() do.
  DeviceMesh build_mesh(const std::string& device_type) const;

  // For resolved dims:
  bool dp_enabled() const { return dp_replicate > 1 || dp_shard > 1; }
  bool fsdp_enabled() const { return dp_shard > 1 || cp > 1; }
  bool tp_enabled() const { return tp > 1; }
  bool pp_enabled() const { return pp > 1; }
  bool cp_enabled() const { return cp > 1; }
  /// The number of ranks with other data than this one's.
  int64_t dp_size() const { return dp_replicate * dp_shard; }
  /// The number of ranks that work on one batch together.
  int64_t non_data_parallel_size() const { return cp * tp * pp; }
  /// A sequence's length must be a multiple of this, with sequence parallelism and context parallelism's load balancing.
  int64_t seq_len_divisor() const { return tp * cp * 2; }

  bool operator==(const ParallelDims&) const = default;
};

// For a mesh that build_mesh has made:

/// Returns the axis, or flattened mesh, of this name; absent if it has only one rank. Local.
COHORT_API std::optional<DeviceMesh> axis_of(const DeviceMesh& mesh, const std::string& name);
/// Returns the mesh for fully_shard: ("dp_shard_cp"), or with replicas ("dp_replicate", "dp_shard_cp"), where the second has one
/// rank if there are only replicas; absent if this rank is alone on all of them. Collective, since it may make groups: call it
/// once for all modules.
COHORT_API std::optional<DeviceMesh> data_parallel_mesh(const DeviceMesh& mesh);
/// This rank's part of the data, for samplers: ranks that differ only in "cp", "tp" or "pp" read the same data. Local.
struct DataShard {
  int64_t num_replicas = 1;
  int64_t rank = 0;
};
COHORT_API DataShard data_shard_of(const DeviceMesh& mesh);
[[deprecated("use data_shard_of")]] inline DataShard data_part_of(const DeviceMesh& mesh) {
  return data_shard_of(mesh);
}

}  // namespace cohort::parallel

// Old names, until the next release.
namespace cohort {
using ParallelDims [[deprecated("use cohort::parallel::ParallelDims")]] = parallel::ParallelDims;
using parallel::axis_of;
using parallel::data_parallel_mesh;
using DataPart [[deprecated("use cohort::parallel::DataShard")]] = parallel::DataShard;
using parallel::data_part_of;
}  // namespace cohort
