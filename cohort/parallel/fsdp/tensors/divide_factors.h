/// The divisors of sums of gradients, before and after the reduction: chosen so that sums in half precision do not overflow, and
/// other dtypes have no extra cost. As _get_gradient_divide_factors of torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py.
#pragma once

#include <c10/core/ScalarType.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <optional>

#include "cohort/export.h"

namespace cohort::fsdp {

struct DivideFactors {
  double before = 1;  ///< divisor of the reduction's input
  double after = 1;   ///< divisor of its result
  c10d::ReduceOp reduce_scatter = c10d::ReduceOp::SUM;
  c10d::ReduceOp all_reduce = c10d::ReduceOp::SUM;
};

struct DivideRequest {
  c10::ScalarType dtype;
  int num_shards = 1;
  int num_replicas = 1;
  std::optional<double> factor = {};  ///< if absent, the number of ranks that have a part of the batch
  bool only_sums = false;
};
COHORT_TEST_API DivideFactors divide_factors(const DivideRequest& request);

}  // namespace cohort::fsdp
