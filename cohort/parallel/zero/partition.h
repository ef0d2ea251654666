/// Decides which rank owns which parameter: the sorted-greedy rule of ZeroRedundancyOptimizer._partition_parameters
/// (torch/distributed/optim/zero_redundancy_optimizer.py), from the sizes only. The same sizes give the same owners, on every
/// rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cohort/export.h"

namespace cohort::zero {

/// [rank][group]: places in the group of the parameters that the rank owns, the largest first.
using Partition = std::vector<std::vector<std::vector<size_t>>>;

/// `sizes`: elements of each parameter, by group. Each group's parameters go, the largest first, one by one to the rank that has
/// the fewest elements so far, of this group and those before it; if several have the same number, to the lowest rank. So a new
/// group at the end changes no owner.
COHORT_TEST_API Partition partition_by_size(const std::vector<std::vector<int64_t>>& sizes, int world_size);

}  // namespace cohort::zero
