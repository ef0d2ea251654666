/// Knows which tensors are shards of full tensors that ranks hold together: a computation over a full model, such as the norm of
/// its gradients, must then include the other ranks. DTensors know it themselves; for other tensors it is noted here.
///
/// Two notes of a tensor are independent: of which full tensor it is a shard, as in a tensor-parallel layer, and how fully_shard
/// has sharded it.
///
/// A note lives as long as its tensor. The groups that it holds stay until another note is made, or forget_ended_shards() is
/// called.
/// Thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"
#include "cohort/mesh/shard_spec.h"

namespace cohort::parallel {

/// Notes that the plain `tensor` is this rank's shard of the tensor that `spec` describes, on a mesh of one axis.
COHORT_TEST_API void note_shard(const at::Tensor& tensor, mesh::ShardSpec spec);
/// Releases the groups of notes whose tensors are gone, if nobody else holds them.
COHORT_TEST_API void forget_ended_shards();
/// Returns which shard of which tensor `tensor` is: for a DTensor, or a plain tensor with such a note, in its dtype and on its
/// device type. Absent if it is a full tensor. Local.
COHORT_TEST_API std::optional<mesh::ShardSpec> noted_shard_spec(const at::Tensor& tensor);

/// `others`: groups over whose ranks each of the group's shards is sharded further, as with tensor parallelism.
COHORT_TEST_API void note_sharded(const at::Tensor& tensor, const Group& group, std::vector<Group> others = {});
/// Notes that `tensor` is the full tensor of such shards; this rank's is `shard`. Its gradients go to the shards.
COHORT_TEST_API void note_full(const at::Tensor& tensor, const at::Tensor& shard, const Group& group);
/// Keeps the note of note_shard().
COHORT_TEST_API void forget_sharded(const at::Tensor& tensor);
/// Whether one of the last two notes exists for it.
bool is_of_fully_shard(const at::Tensor& tensor);
/// Returns the shard given to note_full(); undefined without such a note.
at::Tensor shard_of(const at::Tensor& tensor);
/// Null if the tensor is not sharded.
Group sharding_group(const at::Tensor& tensor);
/// The same with the other groups, and the groups of the axes on which noted_shard_spec() shards it: it is sharded over the ranks
/// of these groups, one after the other. Empty if it is not sharded.
std::vector<Group> sharding_groups(const at::Tensor& tensor);
/// Returns this rank's shard of a tensor: the local tensor of a DTensor, without a gradient, else the tensor itself. Shares
/// memory, except for a Partial DTensor, which is reduced first (then Collective).
at::Tensor own_shard(const at::Tensor& tensor);
/// Throws c10::ValueError for a full tensor whose gradient would be used although its shards have it.
void check_has_own_gradient(const at::Tensor& tensor);
inline bool is_sharded(const at::Tensor& tensor) { return sharding_group(tensor).defined(); }

}  // namespace cohort::parallel
