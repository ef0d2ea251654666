/// Statistics of the numbers of a tensor in a file, computed in float64 for every dtype.
#pragma once

#include <cstdint>

#include "cohort/base/error/result.h"
#include "cohort/files/tensors/sources/tensor_source.h"

namespace cohort::files {

/// The statistics. For a complex tensor, those of its elements' magnitudes.
struct TensorStatistics {
  int64_t num_nan = 0;
  int64_t num_infinite = 0;
  /// Statistics of the finite elements. If `num_finite` is 0, all are 0.
  int64_t num_finite = 0;
  double min = 0;
  double max = 0;
  double mean = 0;
  /// The square root of the sum of squares.
  double norm = 0;
};

base::Result<TensorStatistics> statistics_of(const TensorSource& source, size_t tensor);

}  // namespace cohort::files
