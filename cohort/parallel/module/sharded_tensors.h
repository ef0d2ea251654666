/// Which tensors are parts of greater ones that a group's ranks hold together: what computes with all of a model, such as the
/// norm of its gradients, must then ask the other ranks. DTensors say so themselves.
///
/// Thread-safe. A tensor must be forgotten before it goes: another one may then have its address.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "cohort/comm/group/process_group.h"
#include "cohort/export.h"

namespace cohort::parallel {

/// `others`: over whose ranks, too, each of the group's parts is divided, as by tensor parallelism.
COHORT_TEST_API void note_sharded(const at::Tensor& tensor, const Group& group, std::vector<Group> others = {});
/// `tensor` is what such parts make up. Its gradients go to the parts.
COHORT_TEST_API void note_whole(const at::Tensor& tensor, const Group& group);
COHORT_TEST_API void forget_sharded(const at::Tensor& tensor);
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
