/// Counts the communication of DTensors, and with COHORT_DTENSOR_LOG=1 logs it, operation by operation.
///
///     const auto before = cohort::dtensor::comm_counts();
///     model->forward(tokens);
///     const int64_t num_gathers = (cohort::dtensor::comm_counts() - before).all_gather;
///
/// Counts collectives, one per axis of a mesh; an axis of one rank needs none. The log goes to the standard error of the
/// ranks that are first on every axis of the tensor's mesh:
///
/// ```text
/// [cohort] dtensor: aten::mm: all_reduce over axis "tp" of 4 ranks: Partial(sum) -> Replicate(), 16384 bytes
/// ```
#pragma once

#include <cstdint>

#include "cohort/export.h"

namespace cohort::dtensor {

struct CommCounts {
  int64_t all_reduce = 0;
  int64_t all_gather = 0;
  int64_t reduce_scatter = 0;
  int64_t all_to_all = 0;
  int64_t total() const { return all_reduce + all_gather + reduce_scatter + all_to_all; }
};

inline CommCounts operator-(const CommCounts& after, const CommCounts& before) {
  return {after.all_reduce - before.all_reduce, after.all_gather - before.all_gather,
          after.reduce_scatter - before.reduce_scatter, after.all_to_all - before.all_to_all};
}

/// Returns the counts of this thread since it began.
COHORT_API CommCounts comm_counts();

}  // namespace cohort::dtensor

// Old names, until the next release.
namespace cohort {
using CommCounts [[deprecated("use cohort::dtensor::CommCounts")]] = dtensor::CommCounts;
using dtensor::comm_counts;
}  // namespace cohort
