#include "cohort/parallel/ddp/buckets/agree_on_buckets.h"

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>

namespace cohort::ddp {
namespace {

std::vector<int> broadcast_integers(const Group& group, std::vector<int> values, c10::Device device) {
  auto on_cpu = at::tensor(values, at::kInt);
  std::vector<at::Tensor> tensors{on_cpu.to(device)};
  group->getBackend(device.type())->broadcast(tensors)->wait();
  const auto result = tensors.front().to(at::kCPU);
  return {result.const_data_ptr<int>(), result.const_data_ptr<int>() + result.numel()};
}

}  // namespace

// Two broadcasts: all indices with the number of buckets at the end, then the buckets' sizes.
BucketPlan agree_on_buckets(const Group& group, const BucketPlan& plan, c10::Device device) {
  std::vector<int> indices;
  for (const auto& bucket : plan) indices.insert(indices.end(), bucket.begin(), bucket.end());
  indices.push_back(static_cast<int>(plan.size()));
  indices = broadcast_integers(group, std::move(indices), device);
  const auto num_buckets = static_cast<size_t>(indices.back());
  std::vector<int> sizes(num_buckets);
  for (size_t i = 0; i < num_buckets; ++i) sizes[i] = static_cast<int>(plan[std::min(i, plan.size() - 1)].size());
  sizes = broadcast_integers(group, std::move(sizes), device);
  BucketPlan agreed;
  auto next = indices.begin();
  for (const int size : sizes) {
    agreed.emplace_back(next, next + size);
    next += size;
  }
  return agreed;
}

}  // namespace cohort::ddp
