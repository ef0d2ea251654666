/// A parameter as its module has it: a plain tensor, this rank's shard of one (parallel_layers.h), or a DTensor. Such a layer's
/// shard lies on other axes of the mesh, as with tensor parallelism, and fully_shard shards it further: it is gathered over the
/// data-parallel ranks, which have the same one. A module with DTensors computes with them all the time; they may also lie on the
/// data-parallel axes, replicated.
///
/// As the DTensor parameters of torch/distributed/fsdp/_fully_shard/_fsdp_param.py. Thread-safety: as tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "cohort/comm/group/process_group.h"
#include "cohort/mesh/device_mesh.h"
#include "cohort/mesh/shard_spec.h"
#include "cohort/parallel/fsdp/tensors/sharded_parameter.h"

namespace cohort::fsdp {

/// Returns this rank's shard of `parameter`, or of its gradient: the tensor itself, or its local shard.
const at::Tensor& own_shard(const at::Tensor& parameter);
/// Makes `values` the values of the parameter, or of its local shard. `values` has its sizes, in any dtype. The parameter keeps
/// its identity.
void put_own_shard(const at::Tensor& parameter, const at::Tensor& values);
/// Returns `values`, of own_shard(parameter), as a tensor with the parameter's mesh and placements.
at::Tensor laid_as(const at::Tensor& parameter, const at::Tensor& values);
/// Returns the shard of `gradient` that belongs to own_shard(parameter). Collective over the DTensor's mesh if the gradient has
/// other placements, except on `data_axes`: partial sums stay partial there.
at::Tensor own_gradient(const at::Tensor& gradient, const at::Tensor& parameter,
                        const std::vector<int64_t>& data_axes = {});
at::Tensor own_gradient(const at::Tensor& gradient, const ShardedParameter& parameter);

/// Keeps a DTensor's gradients partial on the data-parallel axes.
void leave_sums_of_data(const ShardedParameter& parameter);

/// Describes `parameter` as a shard of a DTensor; absent if it is not a DTensor. `data`: the data-parallel axes, replicas first.
/// Local. Throws c10::ValueError for a DTensor that is not replicated on one of these.
std::optional<ModelShard> model_shard_of(const at::Tensor& parameter, const DeviceMesh& data);
/// Describes the shard of own_shard(parameter) along `dim` as a shard of the full parameter, on `data` and, for a layer's shard,
/// that layer's mesh: [Replicate, StridedShard or Shard, then the placements of the layer's shard], as in PyTorch; if that cannot
/// express which elements they are, with the layer's axes first.
/// Throws c10::ValueError for a layer's shard on a mesh that was not sliced from the same mesh as `data`.
mesh::ShardSpec spec_of_shard(const at::Tensor& parameter, const std::optional<ModelShard>& part, int64_t dim,
                              c10::ScalarType dtype, const DeviceMesh& data);

/// The ranks that a layer's shard adds to those of fully_shard: of each of its axes, or only of those along which it is sharded.
std::vector<Group> groups_of_axes(const std::optional<ModelShard>& part);
std::vector<Group> groups_of_shards(const std::optional<ModelShard>& part);
/// For messages: the placements of a DTensor, or which shard this rank has; empty for a full tensor.
std::string placement_text(const at::Tensor& parameter);

/// Lets `writer` write `values`, of own_shard(parameter.full), through the full parameter. Collective over a layer shard's mesh;
/// the writer is called on the rank that is first on each of its axes.
void write_full(const Writer& writer, const ShardedParameter& parameter, const at::Tensor& values);

}  // namespace cohort::fsdp
