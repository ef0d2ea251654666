/// A parameter as its module has it: a plain tensor, this rank's part of one (parallel_layers.h), or a DTensor. A part lies on
/// other axes of the mesh, as with tensor parallelism, and that is what fully_shard shares out: it is gathered over the
/// data-parallel ranks, which have the same part. A module with DTensors computes with them all the time; they may lie on the
/// data-parallel axes, too, replicated.
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

/// What this rank has of `parameter`, or of its gradient: the tensor itself, or its part.
const at::Tensor& own_part(const at::Tensor& parameter);
/// From now on the parameter's values, or those of its part, are `values`: of its sizes, whatever the dtype. It keeps its
/// identity.
void put_own_part(const at::Tensor& parameter, const at::Tensor& values);
/// `values`, of own_part(parameter), as a tensor that lies as the parameter does.
at::Tensor laid_as(const at::Tensor& parameter, const at::Tensor& values);
/// The part of `gradient` that belongs to own_part(parameter). Collective over the DTensor's mesh where the gradient lies
/// otherwise, but not on `data_axes`: there summands stay summands.
at::Tensor own_gradient(const at::Tensor& gradient, const at::Tensor& parameter,
                        const std::vector<int64_t>& data_axes = {});
at::Tensor own_gradient(const at::Tensor& gradient, const ShardedParameter& parameter);

/// A DTensor's gradients stay summands on the data-parallel axes.
void leave_sums_of_data(const ShardedParameter& parameter);

/// What `parameter` is of a DTensor; nothing: it is none. `data`: the data-parallel axes, replicas first. Local.
/// Throws c10::ValueError for a DTensor that is not replicated on one of these.
std::optional<ModelPart> part_of_dtensor(const at::Tensor& parameter, const DeviceMesh& data);
/// The shard of own_part(parameter) along `dim` as a part of the whole parameter, on `data` and, of a part, the part's mesh:
/// [Replicate, StridedShard or Shard, then what the part has], as in PyTorch; where that cannot say which elements they are, with
/// the part's axes first.
/// Throws c10::ValueError for a part on a mesh that was not cut from the same one as `data`.
ShardSpec spec_of_shard(const at::Tensor& parameter, const std::optional<ModelPart>& part, int64_t dim,
                        c10::ScalarType dtype, const DeviceMesh& data);

/// The ranks that a part adds to those of fully_shard: of each of its axes, or only of those along which it is cut.
std::vector<Group> groups_of_axes(const std::optional<ModelPart>& part);
std::vector<Group> groups_of_cuts(const std::optional<ModelPart>& part);
/// For messages: how a DTensor lies, or which part this rank has; empty for a whole tensor.
std::string placement_text(const at::Tensor& parameter);

/// `values`, of own_part(parameter.full), are written by `writer` through the whole parameter. Collective over a part's mesh; the
/// writer is called on the rank that is first on each of its axes.
void write_whole(const Writer& writer, const ShardedParameter& parameter, const at::Tensor& values);

}  // namespace cohort::fsdp
