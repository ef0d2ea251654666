#include "cohort/parallel/ddp/buckets/bucket_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace cohort::ddp {
namespace {

// The bucket that is being filled for one dtype and device.
struct OpenBucket {
  c10::ScalarType dtype;
  c10::Device device;
  std::vector<size_t> indices;
  size_t num_bytes = 0;
  size_t limit = 0;
};

OpenBucket& open_bucket_for(std::vector<OpenBucket>& open, const ParameterInfo& parameter) {
  for (auto& bucket : open) {
    if (bucket.dtype == parameter.dtype && bucket.device == parameter.device) return bucket;
  }
  open.push_back({parameter.dtype, parameter.device, {}, 0, 0});
  return open.back();
}

}  // namespace

BucketPlan plan_buckets_in_order(const std::vector<ParameterInfo>& parameters, const BucketLimits& limits,
                                 const std::vector<size_t>& order) {
  BucketPlan plan;
  std::vector<OpenBucket> open;
  for (const size_t index : order) {
    const auto& parameter = parameters[index];
    if (parameter.is_sparse) {
      plan.push_back({index});
      continue;
    }
    auto& bucket = open_bucket_for(open, parameter);
    bucket.indices.push_back(index);
    bucket.num_bytes += parameter.num_bytes;
    if (bucket.num_bytes < limits[bucket.limit]) continue;
    plan.push_back(std::move(bucket.indices));
    bucket.indices.clear();
    bucket.num_bytes = 0;
    bucket.limit = std::min(bucket.limit + 1, limits.size() - 1);
  }
  // PyTorch walks a hash map here, which in practice is newest key first; all ranks use rank 0's order.
  for (auto bucket = open.rbegin(); bucket != open.rend(); ++bucket) {
    if (!bucket->indices.empty()) plan.push_back(std::move(bucket->indices));
  }
  return plan;
}

BucketPlan plan_buckets(const std::vector<ParameterInfo>& parameters, const BucketLimits& limits) {
  std::vector<size_t> order(parameters.size());
  std::iota(order.begin(), order.end(), 0);
  auto plan = plan_buckets_in_order(parameters, limits, order);
  std::sort(plan.begin(), plan.end(), [](const auto& a, const auto& b) {
    return *std::min_element(a.begin(), a.end()) < *std::min_element(b.begin(), b.end());
  });
  return plan;
}

BucketCapacity bucket_capacity(std::optional<double> bucket_cap_mb, const std::vector<double>& bucket_cap_mb_list) {
  constexpr size_t kMiB = 1024 * 1024;
  if (!bucket_cap_mb_list.empty()) {
    BucketLimits list;
    for (const double mb : bucket_cap_mb_list) list.push_back(static_cast<size_t>(mb * kMiB));
    const auto largest = *std::max_element(list.begin(), list.end());
    return {largest, largest, std::move(list)};
  }
  if (!bucket_cap_mb) return {kMiB, 25 * kMiB};
  const auto bytes = static_cast<size_t>(*bucket_cap_mb * kMiB);
  return {bytes, bytes};
}

BucketLimits rebuild_limits(const BucketCapacity& capacity) {
  if (!capacity.list.empty()) return capacity.list;
  return {capacity.first_bytes, capacity.bytes};
}

BucketLimits initial_limits(const BucketCapacity& capacity, bool find_unused_parameters, bool static_graph) {
  if (!capacity.list.empty()) return capacity.list;
  if (static_graph || !find_unused_parameters) return {std::numeric_limits<size_t>::max()};
  if (capacity.first_bytes < capacity.bytes) return {capacity.first_bytes, capacity.bytes};
  return {capacity.bytes};
}

}  // namespace cohort::ddp
