#include "cohort/checkpoint/file/fresh_storages.h"

#include <ATen/ops/empty.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

namespace cohort::checkpoint {
namespace {

constexpr uint64_t kMebibyte = 1 << 20;

char value_of(size_t storage) { return static_cast<char>(storage * 37 + 1); }

bool holds(const c10::Storage& storage, char value) {
  const auto* bytes = static_cast<const char*>(storage.data());
  return std::all_of(bytes, bytes + storage.nbytes(), [&](char byte) { return byte == value; });
}

// Virtual memory of this process, in bytes.
uint64_t mapped_bytes() {
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * 4096;
}

TEST(FreshStorages, LieApartWhateverTheirSizes) {
  const std::vector<uint64_t> sizes{0,         1,         2 * kMebibyte - 1, 2 * kMebibyte, 2 * kMebibyte + 1,
                                    kMebibyte, kMebibyte, 5 * kMebibyte,     9 * kMebibyte, 3};
  std::vector<c10::Storage> storages = detail::fresh_storages(sizes);
  for (size_t i = 0; i < sizes.size(); ++i) {
    ASSERT_EQ(storages[i].nbytes(), sizes[i]);
    if (sizes[i] > 0) std::memset(storages[i].mutable_data(), value_of(i), sizes[i]);
  }
  // Each lives on its own: the rest must not notice.
  for (size_t gone = 0; gone < sizes.size(); gone += 3) storages[gone] = c10::Storage();
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (i % 3 == 0) continue;
    EXPECT_TRUE(holds(storages[i], value_of(i))) << "storage " << i;
  }
}

TEST(FreshStorages, GiveTheirMemoryBack) {
  detail::fresh_storages({kMebibyte});
  const uint64_t before = mapped_bytes();
  for (int round = 0; round < 3; ++round) detail::fresh_storages({65 * kMebibyte, 64 * kMebibyte + 5});
  EXPECT_LT(mapped_bytes(), before + 8 * kMebibyte);
}

TEST(FreshStorages, CanGrowAsOtherStoragesCan) {
  at::Tensor tensor = at::empty({0}, at::kByte);
  tensor.set_(detail::fresh_storages({4 * kMebibyte})[0], 0, {4 * kMebibyte}, {1});
  tensor.fill_(7);
  tensor.resize_({6 * kMebibyte});
  EXPECT_EQ(tensor[4 * kMebibyte - 1].item<int>(), 7);
}

// LibTorch's allocator, and a count of what came from it.
class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t num_bytes) override {
    ++count;
    return c10::GetDefaultCPUAllocator()->allocate(num_bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return c10::GetDefaultCPUAllocator()->raw_deleter(); }
  void copy_data(void* to, const void* from, std::size_t count) const override { default_copy_data(to, from, count); }

  int count = 0;
};

TEST(FreshStorages, ComeFromAnotherAllocatorThatWasSet) {
  CountingAllocator allocator;
  c10::SetCPUAllocator(&allocator, /*priority=*/100);
  { const auto storages = detail::fresh_storages({4 * kMebibyte, 8 * kMebibyte}); }
  c10::SetCPUAllocator(c10::GetDefaultCPUAllocator(), /*priority=*/100);
  EXPECT_EQ(allocator.count, 2);
}

}  // namespace
}  // namespace cohort::checkpoint
