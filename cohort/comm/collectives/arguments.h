/// Checks and conversions of collectives' arguments before a backend is called.
#pragma once

#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/group/group_backend.h"
#include "cohort/export.h"

namespace cohort::comm {

/// Returns true, with PyTorch's warning, on a rank outside of the group.
bool skips(const Group& group, const char* operation);
/// Throws c10::ValueError for tensors of several devices or dtypes, or undefined ones.
void check_alike(const TensorList& tensors, const char* operation);
void check_alike(const at::Tensor& first, const at::Tensor& second, const char* operation);
/// Returns the rank in the group. Throws c10::ValueError if the rank is not a member.
int to_group_rank(const Group& group, RankArgument rank);
/// Returns the tensor that `backend` gets for `tensor`: the same one if the backend takes complex numbers, otherwise pairs of
/// reals, as in PyTorch. A backend that takes only reals reads a copy of a lazily conjugated or negated view; written() throws
/// c10::ValueError for such a view.
COHORT_TEST_API at::Tensor sent(const c10d::Backend& backend, const at::Tensor& tensor);
COHORT_TEST_API at::Tensor written(const c10d::Backend& backend, const at::Tensor& tensor, const char* operation);
TensorList sent(const c10d::Backend& backend, const TensorList& tensors);
TensorList written(const c10d::Backend& backend, const TensorList& tensors, const char* operation);
/// Return the same as a list of one tensor.
TensorList sent_alone(const c10d::Backend& backend, const at::Tensor& tensor);
TensorList written_alone(const c10d::Backend& backend, const at::Tensor& tensor, const char* operation);
/// Waits unless `async_op`.
WorkPtr finish(WorkPtr work, bool async_op);

}  // namespace cohort::comm
