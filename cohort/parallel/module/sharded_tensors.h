/// Which tensors are parts of greater ones that a group's ranks hold together: what computes with all of a model, such as the
/// norm of its gradients, must then ask the other ranks. DTensors say so themselves.
///
/// Two notes of a tensor do not touch each other: the cut of a layer that ranks compute together, and what fully_shard has made
/// of it.
///
/// A note lives as long as its tensor. The groups that it holds stay until another note is made; so whoever ends forgets
/// tensors that nobody else has. Thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"

namespace cohort::parallel {

/// How the ranks of a tensor-parallel group have cut a tensor: along `dim`, as torch.chunk cuts it, into a part for each.
struct TensorCut {
  Group group;
  int64_t dim = 0;
  int64_t size = 0;  ///< of the whole, along `dim`
};
/// `tensor` is this rank's part.
COHORT_TEST_API void note_cut(const at::Tensor& tensor, TensorCut cut);
/// For the destructor of a layer that holds `tensor` as a member and as a parameter: forgets the cut unless others hold it.
void forget_cut_of_ended(const at::Tensor& tensor);
/// Nothing: no layer has cut it.
std::optional<TensorCut> cut_of(const at::Tensor& tensor);
/// The whole of which `tensor` is a part by `cut`.
std::vector<int64_t> whole_sizes(const at::Tensor& tensor, const TensorCut& cut);

/// `others`: over whose ranks, too, each of the group's parts is divided, as by tensor parallelism.
COHORT_TEST_API void note_sharded(const at::Tensor& tensor, const Group& group, std::vector<Group> others = {});
/// `tensor` is what such parts make up; this rank's is `shard`. Its gradients go to the parts.
COHORT_TEST_API void note_whole(const at::Tensor& tensor, const at::Tensor& shard, const Group& group);
/// Keeps a cut.
COHORT_TEST_API void forget_sharded(const at::Tensor& tensor);
/// True: one of the last two is known of it.
bool is_of_fully_shard(const at::Tensor& tensor);
/// What note_whole() was told of it; undefined: nothing.
at::Tensor shard_of(const at::Tensor& tensor);
/// Null: it is whole.
Group sharding_group(const at::Tensor& tensor);
/// The same with the others, and of a DTensor the groups of the axes that cut it: over their ranks, one after the other, it is
/// divided. Empty: it is whole.
std::vector<Group> sharding_groups(const at::Tensor& tensor);
/// What this rank has of a tensor: of a DTensor its part, without a gradient, else itself. Shares memory, but for a DTensor that
/// is Partial, which is reduced first (collective).
at::Tensor own_part(const at::Tensor& tensor);
/// Throws c10::ValueError for a whole tensor whose gradient would be used, though the parts have it.
void check_has_own_gradient(const at::Tensor& tensor);
inline bool is_sharded(const at::Tensor& tensor) { return sharding_group(tensor).defined(); }

}  // namespace cohort::parallel
