// A DataLoader that gives its batches on a device. They are copied in a stream of their own, and must not be read before they are
// complete, nor their memory given to the next copy before they are read.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "cohort/data/datasets/tensor_dataset.h"
#include "cohort/data/loader/data_loader.h"
#include "tests/devices/in_stream.h"
#include "tests/support/sim_device/device_test.h"
#include "tests/support/sim_device/streams.h"

namespace cohort::sim {
namespace {

using data::DataLoader;
using data::DataLoaderOptions;
using data::TensorDataset;
using LoaderDevices = DeviceTest;

constexpr int64_t kRows = 24;
constexpr int64_t kWidth = 500;

// Row i holds i + 1, and its target is 100 i.
TensorDataset<2> rows() {
  const auto numbers = at::arange(kRows, at::kFloat);
  return TensorDataset((numbers + 1).view({kRows, 1}).expand({kRows, kWidth}).contiguous(), numbers * 100);
}

// Each batch is dropped while the work that reads it is still to come.
void expect_right_numbers(DataLoaderOptions options, c10::Device device) {
  options.batch_size = 2;
  options.device = device;
  const DataLoader loader(rows(), options);
  for (int epoch = 0; epoch < 2; ++epoch) {
    std::vector<at::Tensor> seen, targets;
    for (auto& [inputs, target] : loader) {
      ASSERT_EQ(inputs.device(), device);
      ASSERT_EQ(target.device(), device);
      seen.push_back(inputs * 2);
      targets.push_back(target + 1);
    }
    ASSERT_EQ(seen.size(), static_cast<size_t>(kRows / 2));
    for (int64_t i = 0; i < kRows / 2; ++i) {
      const auto numbers = at::arange(2 * i, 2 * i + 2, at::kFloat);
      const auto expected = (2 * numbers + 2).view({2, 1}).expand({2, kWidth});
      EXPECT_TRUE(seen[static_cast<size_t>(i)].cpu().equal(expected)) << "batch " << i;
      EXPECT_TRUE(targets[static_cast<size_t>(i)].cpu().equal(numbers * 100 + 1)) << "batch " << i;
    }
  }
}

TEST_F(LoaderDevices, BatchesAreCompleteAndKeptUntilTheyAreRead) {
  expect_right_numbers({}, device(1));
  expect_right_numbers({.num_workers = 2}, device(0));
  expect_right_numbers({.num_workers = 1, .prefetch_factor = 4, .persistent_workers = true}, device(1));
}

TEST_F(LoaderDevices, TheProgramMayUseAStreamOfItsOwn) {
  const auto stream = new_stream(1);
  queue_of(stream).make_late();
  const InStream in(stream);
  expect_right_numbers({}, device(1));
  expect_right_numbers({.num_workers = 2}, device(1));
}

TEST_F(LoaderDevices, BatchesComeFromPinnedMemory) {
  const DataLoader loader(rows(), {.batch_size = 2, .num_workers = 1, .pin_memory = true});
  int64_t step = 0;
  for (auto& [inputs, target] : loader) {
    EXPECT_TRUE(inputs.is_pinned());
    EXPECT_TRUE(target.is_pinned());
    EXPECT_EQ(inputs[0][0].item<float>(), static_cast<float>(2 * step++ + 1));
  }
}

// A batch that has been copied ahead has not been given.
TEST_F(LoaderDevices, AStateIsOfTheBatchesThatWereGiven) {
  std::atomic<int> num_read{0};
  const auto count = [&](const std::vector<std::tuple<at::Tensor, at::Tensor>>& samples) {
    ++num_read;
    return std::get<0>(samples.front());
  };
  using Loader = DataLoader<TensorDataset<2>, decltype(count)>;
  const DataLoaderOptions options{.num_workers = 1, .device = device(0)};
  const Loader loader(rows(), options, count);
  auto epoch = loader.start();
  while (num_read < 2) std::this_thread::yield();
  epoch.next();
  while (num_read < 3) std::this_thread::yield();
  EXPECT_EQ(epoch.next()->mean().item<float>(), 2);  // the third is probably on the device by now
  EXPECT_EQ(loader.stats().num_batches, 2);
  Loader other(rows(), options, count);
  other.load_state_dict(loader.state_dict());
  EXPECT_FLOAT_EQ(other.start().next()->mean().item<float>(), 3);
  EXPECT_FLOAT_EQ(epoch.next()->mean().item<float>(), 3);
}

TEST_F(LoaderDevices, AnErrorComesInItsTurn) {
  struct Broken {
    at::Tensor get(int64_t index) const {
      TORCH_CHECK(index != 2, "torn");
      return at::full({3}, static_cast<float>(index));
    }
    int64_t size() const { return 4; }
  };
  const DataLoader loader(Broken(), {.num_workers = 1, .device = device(0)});
  for (int repeat = 0; repeat < 10; ++repeat) {
    auto epoch = loader.start();
    EXPECT_EQ(epoch.next()->mean().item<float>(), 0);
    EXPECT_EQ(epoch.next()->mean().item<float>(), 1);
    EXPECT_THROW(epoch.next(), c10::Error);
    EXPECT_EQ(epoch.next()->mean().item<float>(), 3);
    EXPECT_FALSE(epoch.next());
  }
}

// What is on another device, or on this one already, is there as well.
TEST_F(LoaderDevices, SamplesMayBeOnADevice) {
  struct OnDevices {
    at::Tensor get(int64_t index) const { return at::full({2}, static_cast<float>(index)).to(device(index % 2)); }
    int64_t size() const { return 4; }
  };
  const DataLoader loader(OnDevices(), {.device = device(1)});
  float expected = 0;
  for (auto& batch : loader) {
    EXPECT_EQ(batch.device(), device(1));
    EXPECT_EQ(batch.mean().item<float>(), expected++);
  }
}

}  // namespace
}  // namespace cohort::sim
