#include "cohort/parallel/fsdp/tensors/divide_factors.h"

#include <cmath>

#include "cohort/comm/collectives/collectives.h"

namespace cohort::fsdp {

DivideFactors divide_factors(const DivideRequest& request) {
  const bool may_overflow = request.dtype != at::kFloat && request.dtype != at::kBFloat16;
  const int num_ranks = request.num_shards * request.num_replicas;
  DivideFactors result;
  if (!may_overflow && !request.only_sums) {
    if (!request.factor) {
      if (num_ranks > 1) result.reduce_scatter = result.all_reduce = ReduceOp::AVG;
    } else {
      const bool is_average = *request.factor == request.num_shards;
      result.reduce_scatter = is_average ? ReduceOp(ReduceOp::AVG) : premul_sum(1 / *request.factor);
    }
    return result;
  }
  const double factor = request.factor.value_or(num_ranks);
  if (may_overflow) {  // about its square root before the reduction, the rest after
    while (std::fmod(factor, result.before) == 0 && factor / result.before > result.before) result.before *= 2;
  }
  result.after = factor / result.before;
  return result;
}

}  // namespace cohort::fsdp
