/// What the numbers of a tensor in a file are like. Computed in float64, whatever its dtype.
#pragma once

#include <cstdint>

#include "cohort/base/error/result.h"
#include "cohort/files/tensors/sources/tensor_source.h"

namespace cohort::files {

/// Of a complex tensor, those of its elements' magnitudes.
struct TensorStatistics {
  int64_t num_nan = 0;
  int64_t num_infinite = 0;
  /// Of the finite elements; `num_finite` of 0: all are 0.
  int64_t num_finite = 0;
  double min = 0;
  double max = 0;
  double mean = 0;
  /// The square root of the sum of squares.
  double norm = 0;
};

base::Result<TensorStatistics> statistics_of(const TensorSource& source, size_t tensor);

}  // namespace cohort::files
