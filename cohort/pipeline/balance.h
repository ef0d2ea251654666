/// How layers in a row are shared out over the stages of a pipeline, so that the slowest stage is as fast as it can be.
#pragma once

#include <vector>

#include "cohort/base/error/result.h"

namespace cohort::pipeline {

/// How many layers each stage has, at least one: the largest sum of costs is as small as it can be, and among such ways the sums
/// are as even as they can be. `costs`: by layer, in any unit. Fails for fewer layers than stages, and for costs that are
/// negative or no numbers.
base::Result<std::vector<int>> balanced_counts(const std::vector<double>& costs, int num_stages);

/// Fails unless `counts` has a positive number for each stage, and their sum is `num_layers`.
base::Result<void> check_counts(const std::vector<int>& counts, size_t num_layers);

}  // namespace cohort::pipeline
