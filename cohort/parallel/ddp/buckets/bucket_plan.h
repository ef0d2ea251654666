/// Decides which gradient goes into which bucket. Pure.
///
/// Follows compute_bucket_assignment_by_size (torch/csrc/distributed/c10d/reducer.cpp): a bucket holds one dtype on one device;
/// it closes once its size reaches the current limit, and then the next limit counts (the last one stays); a sparse gradient has
/// a bucket of its own.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstddef>
#include <optional>
#include <vector>

#include "cohort/export.h"

namespace cohort::ddp {

struct ParameterInfo {
  c10::ScalarType dtype = c10::ScalarType::Float;
  c10::Device device{c10::DeviceType::CPU};
  size_t num_bytes = 0;
  bool is_sparse = false;
};

/// The parameter indices of each bucket.
using BucketPlan = std::vector<std::vector<size_t>>;

/// Sizes in bytes at which the buckets of one dtype and device close.
using BucketLimits = std::vector<size_t>;

/// Plans buckets over parameters in the given order. Returns buckets ordered by their smallest index.
COHORT_TEST_API BucketPlan plan_buckets(const std::vector<ParameterInfo>& parameters, const BucketLimits& limits);

/// The same over `order`, the indices in which gradients became ready. Returns buckets in the order in which they fill up.
COHORT_TEST_API BucketPlan plan_buckets_in_order(const std::vector<ParameterInfo>& parameters,
                                                 const BucketLimits& limits, const std::vector<size_t>& order);

/// Capacity of buckets in bytes. `bucket_cap_mb`: as in DistributedDataParallel; if absent, 25 MiB with a first bucket of 1 MiB.
struct BucketCapacity {
  size_t first_bytes = 0;
  size_t bytes = 0;
  BucketLimits list = {};  ///< from bucket_cap_mb_list: these limits, also in the first step
};
COHORT_TEST_API BucketCapacity bucket_capacity(std::optional<double> bucket_cap_mb,
                                               const std::vector<double>& bucket_cap_mb_list = {});

/// Returns the limits for buckets that follow the order in which gradients became ready.
COHORT_TEST_API BucketLimits rebuild_limits(const BucketCapacity& capacity);

/// Returns the limits of the first step. Without a search for unused parameters: one bucket per dtype and device, since it is
/// rebuilt anyway.
COHORT_TEST_API BucketLimits initial_limits(const BucketCapacity& capacity, bool find_unused_parameters,
                                            bool static_graph);

}  // namespace cohort::ddp
