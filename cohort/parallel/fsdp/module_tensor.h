/// A parameter as its module has it: a plain tensor, or a DTensor that lies in parts on other axes of the mesh, as with tensor
/// parallelism. Of a DTensor fully_shard shares out the part that this rank has: it is gathered over the data-parallel ranks,
/// which have the same part, and the module computes with a DTensor all the time.
///
/// As the DTensor parameters of torch/distributed/fsdp/_fully_shard/_fsdp_param.py. Thread-safety: as tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "cohort/comm/group/process_group.h"
#include "cohort/mesh/device_mesh.h"
#include "cohort/mesh/shard_spec.h"
#include "cohort/parallel/fsdp/sharded_parameter.h"

namespace cohort::fsdp {

/// What this rank has of `parameter`, or of its gradient: the tensor itself, or its part.
const at::Tensor& own_part(const at::Tensor& parameter);
/// From now on the parameter's values, or those of its part, are `values`: of its sizes, whatever the dtype. It keeps its
/// identity.
void put_own_part(const at::Tensor& parameter, const at::Tensor& values);
/// `values`, of own_part(parameter), as a tensor that lies as the parameter does.
at::Tensor laid_as(const at::Tensor& parameter, const at::Tensor& values);
/// The part of `gradient` that belongs to own_part(parameter). Collective over the DTensor's mesh where the gradient lies
/// otherwise.
at::Tensor own_gradient(const at::Tensor& gradient, const at::Tensor& parameter);

/// The shard of own_part(parameter) along `dim` as a part of the whole parameter. `mesh`: the data-parallel axes, replicas first.
/// Of a DTensor it is one on both meshes: [Replicate, StridedShard or Shard, then what the DTensor has], as in PyTorch; where
/// that cannot say which elements they are, with the DTensor's axes first.
/// Throws c10::ValueError for a DTensor on a mesh that was not cut from the same one as `mesh`.
ShardSpec spec_of_shard(const at::Tensor& parameter, int64_t dim, c10::ScalarType dtype, const DeviceMesh& mesh);

/// The ranks that the parameter's mesh adds to those of fully_shard: of each of its axes, or only of those along which it is cut.
std::vector<Group> groups_of_axes(const at::Tensor& parameter);
std::vector<Group> groups_of_cuts(const at::Tensor& parameter);
/// For messages: how a DTensor lies; empty for a plain tensor.
std::string placement_text(const at::Tensor& parameter);

/// `values`, of own_part(parameter), are written by `writer` through the whole parameter. Collective over the DTensor's mesh; the
/// writer is called on the rank that is first on each of its axes.
void write_whole(const Writer& writer, const std::string& name, const at::Tensor& parameter, const at::Tensor& values);

}  // namespace cohort::fsdp
