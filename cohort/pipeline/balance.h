/// Splits a sequence of layers over the stages of a pipeline, so that the slowest stage is as fast as possible.
#pragma once

#include <vector>

#include "cohort/base/error/result.h"

namespace cohort::pipeline {

/// Returns the number of layers of each stage, at least one. The largest sum of costs is as small as possible, and among such
/// splits the sums are as even as possible. `costs` has the cost of each layer, in any unit. Fails if there are fewer layers than
/// stages, or for costs that are negative or NaN.
base::Result<std::vector<int>> plan_counts(const std::vector<double>& costs, int num_stages);

/// Fails unless `counts` has a positive number for each stage, and their sum is `num_layers`.
base::Result<void> check_counts(const std::vector<int>& counts, size_t num_layers);

}  // namespace cohort::pipeline
