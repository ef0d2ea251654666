/// What collectives check and convert before they call a backend.
#pragma once

#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/group/group_backend.h"

namespace cohort::comm {

/// True, with PyTorch's warning, on a rank outside the group.
bool skips(const Group& group, const char* operation);
/// Throws c10::ValueError for tensors of several devices or dtypes, or undefined ones.
void check_alike(const TensorList& tensors, const char* operation);
void check_alike(const at::Tensor& first, const at::Tensor& second, const char* operation);
/// Rank in the group. Throws c10::ValueError when there is none.
int to_group_rank(const Group& group, RankArgument rank);
/// Complex numbers travel as pairs of reals, as in PyTorch.
at::Tensor as_real(const at::Tensor& tensor);
TensorList as_real(const TensorList& tensors);
/// as_real(tensor) alone in a list.
TensorList real_list(const at::Tensor& tensor);
/// Waits unless `async_op`.
WorkPtr finish(WorkPtr work, bool async_op);

}  // namespace cohort::comm
