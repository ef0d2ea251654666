/// ParallelDims: how many ranks work together in which way, checked, and the mesh that has an axis for each.
///
///     const cohort::ParallelDims dims = cohort::ParallelDims{.dp_shard = -1, .tp = 2}.resolved(cohort::get_world_size());
///     const cohort::DeviceMesh mesh = dims.build_mesh("cpu");     // 8 ranks: (dp_shard=4, tp=2)
///     cohort::ColumnParallelLinear up(64, 256, {.group = mesh.group("tp")});
///
/// Names, order of axes and flattened meshes are those of torchtitan/distributed/parallel_dims.py.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cohort/export.h"
#include "cohort/mesh/device_mesh.h"

namespace cohort {

struct COHORT_API ParallelDims {
  /// Numbers of ranks; one of them may be -1, which is what the others leave.
  int64_t dp_replicate = 1;  ///< copies of the model, each on other data
  int64_t dp_shard = 1;      ///< parts of each parameter, on other data (FSDP)
  int64_t tp = 1;            ///< parts of each layer's computation
  int64_t pp = 1;            ///< stages of the pipeline
  int64_t cp = 1;            ///< parts of each sequence

  /// The same without -1. Local.
  /// Throws c10::ValueError, with the product, unless all are at least 1 and make up `world_size`.
  ParallelDims resolved(int64_t world_size) const;

  /// Collective: resolves for the default group, which it creates if there is none, and makes a mesh with the axes "pp",
  /// "dp_replicate", "dp_shard", "cp", "tp", in this order, without those of one rank. If all are, the mesh is ("dp_shard"=1).
  /// Slices of it are also flattened, where they have an axis: "dp" (dp_replicate, dp_shard: ranks with other data),
  /// "dp_shard_cp" (dp_shard, cp: over which parameters are sharded), "dp_cp" (all three: over which a loss is summed).
  /// Throws as resolved() and init_device_mesh() do.
  DeviceMesh build_mesh(const std::string& device_type) const;

  // Of resolved dims:
  bool dp_enabled() const { return dp_replicate > 1 || dp_shard > 1; }
  bool fsdp_enabled() const { return dp_shard > 1 || cp > 1; }
  bool tp_enabled() const { return tp > 1; }
  bool pp_enabled() const { return pp > 1; }
  bool cp_enabled() const { return cp > 1; }
  /// Ranks with other data than this one's.
  int64_t dp_size() const { return dp_replicate * dp_shard; }
  /// Ranks that work on one batch together.
  int64_t non_data_parallel_size() const { return cp * tp * pp; }
  /// What a sequence's length must be a multiple of, with sequence parallelism and context parallelism's load balance.
  int64_t seq_len_divisor() const { return tp * cp * 2; }

  bool operator==(const ParallelDims&) const = default;
};

// Of a mesh that build_mesh has made:

/// The axis, or flattened mesh, of this name; nothing where it is not there, as it has one rank only. Local.
COHORT_API std::optional<DeviceMesh> axis_of(const DeviceMesh& mesh, const std::string& name);
/// What fully_shard takes: ("dp_shard_cp"), or with copies ("dp_replicate", "dp_shard_cp"), the second of one rank where there
/// are only copies; nothing where this rank is alone on all of them. Collective, as it may make groups: once for all modules.
COHORT_API std::optional<DeviceMesh> data_parallel_mesh(const DeviceMesh& mesh);
/// Which part of the data is this rank's, for samplers: ranks that differ in "cp", "tp" or "pp" alone read the same. Local.
struct DataPart {
  int64_t num_replicas = 1;
  int64_t rank = 0;
};
COHORT_API DataPart data_part_of(const DeviceMesh& mesh);

}  // namespace cohort
