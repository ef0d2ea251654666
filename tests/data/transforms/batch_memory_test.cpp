#include "cohort/data/transforms/batch_memory.h"

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <vector>

namespace cohort::data {
namespace {

TEST(BatchMemory, ComesBackWhenNobodyHasTheBatch) {
  const auto memory = BatchMemory::make();
  at::Tensor batch = memory->empty({4, 3}, at::kFloat);
  EXPECT_EQ(batch.sizes(), at::IntArrayRef({4, 3}));
  EXPECT_TRUE(batch.is_contiguous());
  EXPECT_EQ(batch.scalar_type(), at::kFloat);
  const void* const first = batch.data_ptr();
  batch.fill_(7);
  at::Tensor row = batch[2];
  batch.reset();
  at::Tensor other = memory->empty({4, 3}, at::kFloat);
  EXPECT_NE(other.data_ptr(), first);  // the row still lives there
  other.fill_(1);
  EXPECT_TRUE(row.equal(at::full({3}, 7.0F)));
  row.reset();
  EXPECT_EQ(memory->empty({3, 3}, at::kFloat).data_ptr(), first);  // a smaller one
  EXPECT_NE(memory->empty({5, 3}, at::kFloat).data_ptr(), first);  // a larger one
}

TEST(BatchMemory, BatchesOutliveIt) {
  at::Tensor batch = BatchMemory::make()->empty({1000}, at::kLong);
  batch.fill_(3);
  EXPECT_EQ(batch.sum().item<int64_t>(), 3000);
  batch.resize_({100000});  // as any other tensor
  EXPECT_EQ(batch.narrow(0, 0, 1000).sum().item<int64_t>(), 3000);
}

TEST(BatchMemory, KeepsAFewOfThoseThatAreFreed) {
  const auto memory = BatchMemory::make();
  std::vector<at::Tensor> batches;
  std::set<void*> places;
  for (int i = 0; i < 20; ++i) batches.push_back(memory->empty({16}, at::kByte));
  for (const at::Tensor& batch : batches) places.insert(batch.data_ptr());
  EXPECT_EQ(places.size(), 20U);
  const std::set<void*> last{batches[19].data_ptr(), batches[12].data_ptr()};
  for (at::Tensor& batch : batches) batch.reset();
  std::set<void*> again;
  for (int i = 0; i < 8; ++i) batches[static_cast<size_t>(i)] = memory->empty({16}, at::kByte);
  for (int i = 0; i < 8; ++i) again.insert(batches[static_cast<size_t>(i)].data_ptr());
  for (void* const place : last) EXPECT_TRUE(again.contains(place));
}

TEST(BatchMemory, NoTwoThreadsGetTheSame) {
  const auto memory = BatchMemory::make();
  std::vector<std::thread> threads;
  std::vector<int> num_wrong(4, 0);
  for (int which = 0; which < 4; ++which) {
    threads.emplace_back([&, which] {
      for (int i = 0; i < 2000; ++i) {
        const at::Tensor batch = memory->empty({64}, at::kInt);
        auto* const values = batch.mutable_data_ptr<int>();
        for (int k = 0; k < 64; ++k) values[k] = which;
        std::this_thread::yield();
        for (int k = 0; k < 64; ++k) num_wrong[static_cast<size_t>(which)] += values[k] == which ? 0 : 1;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(num_wrong, std::vector<int>(4, 0));
}

}  // namespace
}  // namespace cohort::data
