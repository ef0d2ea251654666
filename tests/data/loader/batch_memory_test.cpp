#include "cohort/data/loader/batch_memory.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <optional>

#include "cohort/data/loader/collate.h"
#include "cohort/data/loader/data_loader.h"

namespace cohort::data {
namespace {

using detail::BatchMemory;

constexpr int64_t kLarge = 1 << 19;  // floats: 2 MiB

// Example i is full of i.
struct LargeExamples {
  int64_t count = 12;
  at::Tensor get(int64_t index) const { return at::full({kLarge}, static_cast<float>(index)); }
  int64_t size() const { return count; }
};

TEST(BatchMemory, IsUsedAgainOnceABatchIsDropped) {
  const auto memory = std::make_shared<BatchMemory>(2);
  auto first = std::optional(memory->make_empty({4, kLarge}, at::kFloat));
  const auto second = memory->make_empty({4, kLarge}, at::kFloat);
  const void* const address = first->data_ptr();
  EXPECT_NE(address, second.data_ptr());
  EXPECT_TRUE(first->is_contiguous());
  EXPECT_EQ(first->sizes(), (std::vector<int64_t>{4, kLarge}));
  const auto row = first->select(0, 2);
  first.reset();
  EXPECT_NE(memory->make_empty({4, kLarge}, at::kFloat).data_ptr(), address) << "a row of it is still there";
}

TEST(BatchMemory, KeepsWhatFitsWithoutWasteAndNotTooMuch) {
  const auto memory = std::make_shared<BatchMemory>(1);
  const auto address_of = [&](int64_t rows) { return memory->make_empty({rows, kLarge}, at::kFloat).data_ptr(); };
  const void* const address = address_of(8);
  EXPECT_EQ(address_of(7), address);
  EXPECT_NE(address_of(2), address);  // which is kept instead of the older
  auto two = std::optional(memory->make_empty({2, kLarge}, at::kFloat));
  auto more = std::optional(memory->make_empty({2, kLarge}, at::kFloat));
  const void* const younger = more->data_ptr();
  two.reset();
  more.reset();
  EXPECT_EQ(address_of(2), younger);
}

TEST(BatchMemory, OutlivesItsLoaderInABatchThatIsKept) {
  std::vector<at::Tensor> kept;
  {
    const DataLoader loader(LargeExamples{}, {.batch_size = 2, .num_workers = 2});
    for (auto& batch : loader) kept.push_back(batch);
  }
  for (size_t i = 0; i < kept.size(); ++i) {
    EXPECT_EQ(kept[i][0][7].item<float>(), static_cast<float>(2 * i));
    EXPECT_EQ(kept[i][1][kLarge - 1].item<float>(), static_cast<float>(2 * i + 1));
  }
  kept[0].resize_({3, kLarge});
  EXPECT_EQ(kept[0][1][0].item<float>(), 1);
}

TEST(BatchMemory, ALoaderHasFewBlocksHoweverLongItsEpoch) {
  std::set<const void*> addresses;
  const DataLoader loader(LargeExamples{60}, {.batch_size = 2});
  for (auto& batch : loader) addresses.insert(batch.data_ptr());
  EXPECT_LE(addresses.size(), 2u);
}

TEST(BatchMemory, IsNotForGradientsOrSeveralTypes) {
  const auto memory = std::make_shared<BatchMemory>(1);
  const BatchMemory::Scope scope(memory);
  const auto leaf = at::full({kLarge}, 2.0f).set_requires_grad(true);
  EXPECT_TRUE(collate(std::vector{leaf, leaf}).requires_grad());
  EXPECT_EQ(collate(std::vector{at::full({kLarge}, 2.0f), at::full({kLarge}, 2.0, at::kDouble)}).scalar_type(),
            at::kDouble);
  EXPECT_TRUE(collate(std::vector{at::arange(kLarge), at::arange(kLarge)})[1].equal(at::arange(kLarge)));
}

}  // namespace
}  // namespace cohort::data
