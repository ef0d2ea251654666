/// Which tensors are parts of greater ones that ranks hold together: what computes with all of a model, such as the norm of its
/// gradients, must then ask the other ranks. DTensors say so themselves, of others it is noted.
///
/// Two notes of a tensor do not touch each other: of what whole it is a part, as in a layer that ranks compute together, and what
/// fully_shard has made of it.
///
/// A note lives as long as its tensor. The groups that it holds stay until another note is made, or forget_ended_parts().
/// Thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"
#include "cohort/mesh/shard_spec.h"

namespace cohort::parallel {

/// The plain `tensor` is this rank's part of what `spec` describes, on a mesh of one axis.
COHORT_TEST_API void note_part(const at::Tensor& tensor, ShardSpec spec);
/// For whoever has let noted tensors go: the groups of those that nobody else has go, too.
void forget_ended_parts();
/// Of what whole `tensor` is which part: of a DTensor, or of a plain tensor of which that was noted, in its dtype and on its type
/// of device. Nothing: it is whole. Local.
COHORT_TEST_API std::optional<ShardSpec> part_spec(const at::Tensor& tensor);

/// `others`: over whose ranks, too, each of the group's parts is divided, as by tensor parallelism.
COHORT_TEST_API void note_sharded(const at::Tensor& tensor, const Group& group, std::vector<Group> others = {});
/// `tensor` is what such parts make up; this rank's is `shard`. Its gradients go to the parts.
COHORT_TEST_API void note_whole(const at::Tensor& tensor, const at::Tensor& shard, const Group& group);
/// Keeps what note_part() said.
COHORT_TEST_API void forget_sharded(const at::Tensor& tensor);
/// True: one of the last two is known of it.
bool is_of_fully_shard(const at::Tensor& tensor);
/// What note_whole() was told of it; undefined: nothing.
at::Tensor shard_of(const at::Tensor& tensor);
/// Null: it is whole.
Group sharding_group(const at::Tensor& tensor);
/// The same with the others, and the groups of the axes on which part_spec() cuts it: over their ranks, one after the other, it
/// is divided. Empty: it is whole.
std::vector<Group> sharding_groups(const at::Tensor& tensor);
/// What this rank has of a tensor: of a DTensor its part, without a gradient, else itself. Shares memory, but for a DTensor that
/// is Partial, which is reduced first (collective).
at::Tensor own_part(const at::Tensor& tensor);
/// Throws c10::ValueError for a whole tensor whose gradient would be used, though the parts have it.
void check_has_own_gradient(const at::Tensor& tensor);
inline bool is_sharded(const at::Tensor& tensor) { return sharding_group(tensor).defined(); }

}  // namespace cohort::parallel
