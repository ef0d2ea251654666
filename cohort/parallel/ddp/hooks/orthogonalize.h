/// Makes columns orthonormal, as PowerSGD needs them. Follows _orthogonalize in
/// torch/distributed/algorithms/ddp_comm_hooks/powerSGD_hook.py.
#pragma once

#include <ATen/core/Tensor.h>

#include "cohort/export.h"

namespace cohort::ddp {

/// Orthonormalizes, in place, the columns of each matrix of a batch [matrices, rows, columns] with at most as many columns as
/// rows. Uses Gram-Schmidt for one or two columns and for half precision, else a QR factorization. `epsilon` is added to the
/// length by which Gram-Schmidt divides each column: without it a column of zeros becomes NaN.
COHORT_TEST_API void orthogonalize(const at::Tensor& matrices, double epsilon);

}  // namespace cohort::ddp
