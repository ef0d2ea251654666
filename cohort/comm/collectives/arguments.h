/// What collectives check and convert before they call a backend.
#pragma once

#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/group/group_backend.h"
#include "cohort/export.h"

namespace cohort::comm {

/// True, with PyTorch's warning, on a rank outside the group.
bool skips(const Group& group, const char* operation);
/// Throws c10::ValueError for tensors of several devices or dtypes, or undefined ones.
void check_alike(const TensorList& tensors, const char* operation);
void check_alike(const at::Tensor& first, const at::Tensor& second, const char* operation);
/// Rank in the group. Throws c10::ValueError when there is none.
int to_group_rank(const Group& group, RankArgument rank);
/// The tensor that `backend` is given for `tensor`: the same one, if it takes complex numbers; else pairs of reals, as in
/// PyTorch. Such a backend reads a copy of a lazily conjugated or negated view; written() throws c10::ValueError for one.
COHORT_TEST_API at::Tensor sent(const c10d::Backend& backend, const at::Tensor& tensor);
COHORT_TEST_API at::Tensor written(const c10d::Backend& backend, const at::Tensor& tensor, const char* operation);
TensorList sent(const c10d::Backend& backend, const TensorList& tensors);
TensorList written(const c10d::Backend& backend, const TensorList& tensors, const char* operation);
/// Alone in a list.
TensorList sent_alone(const c10d::Backend& backend, const at::Tensor& tensor);
TensorList written_alone(const c10d::Backend& backend, const at::Tensor& tensor, const char* operation);
/// Waits unless `async_op`.
WorkPtr finish(WorkPtr work, bool async_op);

}  // namespace cohort::comm
