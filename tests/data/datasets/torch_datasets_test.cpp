// LibTorch's own datasets (torch::data) in our DataLoader.
#include <ATen/ops/arange.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/data/datasets/map.h>
#include <torch/data/datasets/stateful.h>
#include <torch/data/datasets/tensor.h>
#include <torch/data/transforms/lambda.h>
#include <torch/data/transforms/stack.h>

#include "cohort/data/datasets/subset.h"
#include "cohort/data/loader/data_loader.h"

namespace cohort::data {
namespace {

using TorchRows = torch::data::datasets::TensorDataset;
using StackExamples = torch::data::transforms::Stack<torch::data::TensorExample>;

struct Labeled : torch::data::datasets::Dataset<Labeled> {
  torch::data::Example<> get(size_t index) override {
    return {at::arange(2) + static_cast<int64_t>(index), at::scalar_tensor(static_cast<int64_t>(index), at::kLong)};
  }
  std::optional<size_t> size() const override { return 5; }
};

// Gives 0 ... 6 in batches of the size that is asked for, from the beginning after each reset().
struct Reader : torch::data::datasets::StatefulDataset<Reader, std::vector<torch::data::TensorExample>> {
  std::optional<std::vector<torch::data::TensorExample>> get_batch(size_t size) override {
    std::vector<torch::data::TensorExample> batch;
    for (; batch.size() < size && next < 7; ++next) batch.emplace_back(at::scalar_tensor(next, at::kLong));
    if (batch.empty()) return std::nullopt;
    return batch;
  }
  void reset() override { next = 0; }
  void save(torch::serialize::OutputArchive&) const override {}
  void load(torch::serialize::InputArchive&) override {}
  std::optional<size_t> size() const override { return std::nullopt; }
  int64_t next = 100;
};

TEST(TorchDatasets, ExamplesWithTargetsAndWithout) {
  const DataLoader labeled(Labeled(), {.batch_size = 3, .num_workers = 1});
  const auto batch = *labeled.begin();
  EXPECT_TRUE(batch.data.equal(at::stack({at::arange(2), at::arange(1, 3), at::arange(2, 4)})));
  EXPECT_TRUE(batch.target.equal(at::arange(3)));
  const DataLoader rows(TorchRows(at::arange(6)), {.batch_size = 4});
  EXPECT_TRUE(rows.begin()->data.equal(at::arange(4)));
}

TEST(TorchDatasets, StackedOnesGiveWholeBatches) {
  const auto add_one = [](torch::data::TensorExample example) { return torch::data::TensorExample(example.data + 1); };
  using AddOne = torch::data::transforms::Lambda<torch::data::TensorExample>;
  const DataLoader loader(TorchRows(at::arange(6)).map(AddOne(add_one)).map(StackExamples()),
                          {.batch_size = 4, .num_workers = 2});
  EXPECT_EQ(loader.size(), 2);
  auto epoch = loader.start();
  EXPECT_TRUE(epoch.next()->data.equal(at::arange(1, 5)));
  EXPECT_TRUE(epoch.next()->data.equal(at::arange(5, 7)));
  EXPECT_FALSE(epoch.next());
  const DataLoader unstacked(TorchRows(at::arange(6)).map(AddOne(add_one)), {.batch_size = 6});
  EXPECT_TRUE(unstacked.begin()->data.equal(at::arange(1, 7)));
}

TEST(TorchDatasets, StatefulOnesBeginAgainEachEpoch) {
  const auto data = [](const auto& loader) {
    std::vector<at::Tensor> batches;
    for (auto& batch : loader) batches.push_back(batch.data);
    return batches;
  };
  for (const int num_workers : {0, 1}) {
    const DataLoader loader(Reader(), {.batch_size = 3, .num_workers = num_workers});
    for (int epoch = 0; epoch < 2; ++epoch) {
      const auto batches = data(loader);
      ASSERT_EQ(batches.size(), 3u);
      EXPECT_TRUE(batches[1].equal(at::arange(3, 6)));
      EXPECT_TRUE(batches[2].equal(at::arange(6, 7)));
    }
  }
  EXPECT_EQ(data(DataLoader(Reader(), {.batch_size = 3, .drop_last = true})).size(), 2u);
  const DataLoader mapped(Reader().map(StackExamples()), {.batch_size = 7});
  EXPECT_TRUE(mapped.begin()->data.equal(at::arange(7)));
}

TEST(TorchDatasets, CanBeSplit) {
  const auto parts = random_split(Labeled(), {0.6, 0.4});
  EXPECT_EQ(parts[0].size(), 3);
  EXPECT_EQ(parts[1].get(0).target.item<int64_t>(), parts[1].indices()[0]);
}

}  // namespace
}  // namespace cohort::data
