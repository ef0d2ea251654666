/// Orthonormal columns, as PowerSGD needs them. Follows _orthogonalize in torch/distributed/algorithms/ddp_comm_hooks/
/// powerSGD_hook.py.
#pragma once

#include <ATen/core/Tensor.h>

#include "cohort/export.h"

namespace cohort::ddp {

/// In place: the columns of each matrix of a batch [matrices, rows, columns], with no more columns than rows. By Gram and Schmidt
/// for one or two columns and for half precision, else by a QR factorisation. `epsilon` is added to the length of each column
/// by which Gram and Schmidt divide: without it a column of zeros becomes NaN.
COHORT_TEST_API void orthogonalize(const at::Tensor& matrices, double epsilon);

}  // namespace cohort::ddp
