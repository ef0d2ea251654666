#include "cohort/parallel/ddp/buckets/bucket_plan.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

namespace cohort::ddp {
namespace {

ParameterInfo floats(size_t count) { return {c10::ScalarType::Float, c10::kCPU, count * 4, false}; }

TEST(BucketPlan, ClosesABucketWhenItReachesTheLimit) {
  EXPECT_EQ(plan_buckets({floats(10), floats(20), floats(5)}, {120}), (BucketPlan{{0, 1}, {2}}));
}

TEST(BucketPlan, StartsNewBucketWhenDtypeOrDeviceChanges) {
  auto half = floats(10);
  half.dtype = c10::ScalarType::Half;
  auto second_gpu = floats(10);
  second_gpu.device = c10::Device("cuda:1");
  auto first_gpu = floats(10);
  first_gpu.device = c10::Device("cuda:0");
  EXPECT_EQ(plan_buckets({floats(10), half, first_gpu, second_gpu, floats(10), second_gpu}, {1000}),
            (BucketPlan{{0, 4}, {1}, {2}, {3, 5}}));
}

TEST(BucketPlan, GivesASparseGradientABucketOfItsOwn) {
  auto sparse = floats(10);
  sparse.is_sparse = true;
  EXPECT_EQ(plan_buckets({floats(1), sparse, floats(1)}, {1000}), (BucketPlan{{0, 2}, {1}}));
}

TEST(BucketPlan, UsesTheLimitsOneAfterTheOtherThenTheLast) {
  EXPECT_EQ(plan_buckets({floats(1), floats(1), floats(1), floats(1), floats(1)}, {4, 8}),
            (BucketPlan{{0}, {1, 2}, {3, 4}}));
}

TEST(BucketPlan, FollowsTheReadyOrder) {
  EXPECT_EQ(plan_buckets_in_order({floats(1), floats(1), floats(1)}, {8}, {2, 0, 1}), (BucketPlan{{2, 0}, {1}}));
}

TEST(BucketPlan, DefaultCapacityIs25MiBWithAFirstBucketOf1MiB) {
  EXPECT_EQ(bucket_capacity(std::nullopt).first_bytes, 1024u * 1024);
  EXPECT_EQ(bucket_capacity(std::nullopt).bytes, 25u * 1024 * 1024);
  EXPECT_EQ(bucket_capacity(1.5).first_bytes, 1024u * 1536);
  EXPECT_EQ(bucket_capacity(1.5).bytes, 1024u * 1536);
}

TEST(BucketPlan, FirstStepUsesOneBucketUnlessUnusedParametersAreSearched) {
  const auto capacity = bucket_capacity(std::nullopt);
  EXPECT_EQ(initial_limits(capacity, false, false), BucketLimits{std::numeric_limits<size_t>::max()});
  EXPECT_EQ(initial_limits(capacity, true, true), BucketLimits{std::numeric_limits<size_t>::max()});
  EXPECT_EQ(initial_limits(capacity, true, false), (BucketLimits{capacity.first_bytes, capacity.bytes}));
  EXPECT_EQ(initial_limits(bucket_capacity(2.0), true, false), BucketLimits{2u * 1024 * 1024});
}

// LibTorch's own function, on tensors without storage.
BucketPlan reference(const std::vector<ParameterInfo>& infos, const BucketLimits& limits,
                     const std::vector<size_t>& order) {
  std::vector<at::Tensor> tensors;
  std::vector<bool> sparse;
  const auto& source = order.empty() ? std::vector<size_t>() : order;
  for (size_t i = 0; i < infos.size(); ++i) {
    const auto& info = infos[order.empty() ? i : source[i]];
    const auto elements = static_cast<int64_t>(info.num_bytes / c10::elementSize(info.dtype));
    tensors.push_back(at::empty({elements}, at::TensorOptions().dtype(info.dtype).device(info.device)));
    sparse.push_back(infos[i].is_sparse);
  }
  const std::vector<int64_t> indices(order.begin(), order.end());
  return std::get<0>(c10d::compute_bucket_assignment_by_size(tensors, limits, sparse, indices));
}

TEST(BucketPlan, EqualsLibTorchsOnRandomParameterLists) {
  std::mt19937 random(1);
  const std::vector<c10::ScalarType> dtypes = {c10::kFloat, c10::kDouble, c10::kHalf, c10::kBFloat16};
  const std::vector<c10::Device> devices = {c10::Device("cpu"), c10::Device("meta")};
  for (int round = 0; round < 300; ++round) {
    std::vector<ParameterInfo> infos(1 + random() % 30);
    for (auto& info : infos) {
      info.dtype = dtypes[random() % (round % 2 ? 1 : dtypes.size())];
      info.device = devices[random() % (round % 3 ? 1 : devices.size())];
      info.num_bytes = c10::elementSize(info.dtype) * (random() % 50);
      info.is_sparse = random() % 10 == 0;
    }
    const BucketLimits limits = round % 2 ? BucketLimits{40, 200} : BucketLimits{100};
    EXPECT_EQ(plan_buckets(infos, limits), reference(infos, limits, {})) << "round " << round;
    std::vector<size_t> order(infos.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    auto ours = plan_buckets_in_order(infos, limits, order);
    auto theirs = reference(infos, limits, order);
    if (round % 6 == 0) {
      // With eight kinds of buckets, LibTorch's hash map yields the unfilled ones at the end in an order of its own.
      std::sort(ours.begin(), ours.end());
      std::sort(theirs.begin(), theirs.end());
    }
    EXPECT_EQ(ours, theirs) << "round " << round;
  }
}

TEST(BucketPlan, ListOfCapacitiesIsForEachBucketInTheFirstStepToo) {
  const auto capacity = bucket_capacity(1.0, {0.5, 3, 2});
  constexpr size_t kMiB = 1024 * 1024;
  const BucketLimits expected{kMiB / 2, 3 * kMiB, 2 * kMiB};
  EXPECT_EQ(initial_limits(capacity, false, false), expected);
  EXPECT_EQ(initial_limits(capacity, true, true), expected);
  EXPECT_EQ(rebuild_limits(capacity), expected);
  EXPECT_EQ(capacity.bytes, 3 * kMiB);
  EXPECT_EQ(rebuild_limits(bucket_capacity({})), (BucketLimits{kMiB, 25 * kMiB}));
}

}  // namespace
}  // namespace cohort::ddp
