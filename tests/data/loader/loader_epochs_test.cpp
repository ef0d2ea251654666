// Which datasets a DataLoader tells the numbers of its epochs, and which numbers.
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <vector>

#include "cohort/data/datasets/chain_dataset.h"
#include "cohort/data/datasets/concat_dataset.h"
#include "cohort/data/datasets/stack_dataset.h"
#include "cohort/data/datasets/subset.h"
#include "cohort/data/loader/data_loader.h"
#include "cohort/data/loader/iterable.h"
#include "cohort/data/samplers/distributed_sampler.h"
#include "cohort/data/samplers/elastic_distributed_sampler.h"

namespace cohort::data {
namespace {

using testing::ElementsAre;

struct ToldOfEpochs {
  int64_t get(int64_t index) const { return index; }
  int64_t size() const { return 6; }
  void begin_epoch(int64_t epoch) const { epochs->push_back(epoch); }
  std::shared_ptr<std::vector<int64_t>> epochs = std::make_shared<std::vector<int64_t>>();
};

template <class Loader>
void run_epochs(const Loader& loader, int count) {
  for (int i = 0; i < count; ++i) {
    for ([[maybe_unused]] auto& batch : loader) {
    }
  }
}

TEST(DataLoaderEpochs, AreToldToTheDatasetWhereTheOrderChanges) {
  const auto epochs_of = [](DataLoaderOptions options) {
    const ToldOfEpochs dataset;
    options.batch_size = 2;
    run_epochs(DataLoader(dataset, options), 3);
    return *dataset.epochs;
  };
  EXPECT_THAT(epochs_of({.shuffle = true}), ElementsAre(0, 1, 2));
  EXPECT_THAT(epochs_of({.shuffle = true, .num_workers = 2}), ElementsAre(0, 1, 2));
  EXPECT_THAT(epochs_of({.sampler = std::make_shared<RandomSampler>(6)}), ElementsAre(0, 1, 2));
  EXPECT_THAT(epochs_of({}), ElementsAre());  // as for validation
}

TEST(DataLoaderEpochs, AreThoseOfADistributedSampler) {
  const auto epochs_of = [](const auto& sampler) {
    const ToldOfEpochs dataset;
    const DataLoader loader(dataset, {.sampler = sampler});
    for (const int64_t epoch : {5, 7}) {
      sampler->set_epoch(epoch);
      run_epochs(loader, 1);
    }
    return *dataset.epochs;
  };
  const auto untold_of = [](const std::shared_ptr<Sampler>& sampler) {
    const ToldOfEpochs dataset;
    run_epochs(DataLoader(dataset, {.sampler = sampler}), 1);
    return *dataset.epochs;
  };
  EXPECT_THAT(epochs_of(std::make_shared<DistributedSampler>(6, DistributedSamplerOptions{2, 1})), ElementsAre(5, 7));
  EXPECT_THAT(epochs_of(std::make_shared<DistributedSampler>(6, DistributedSamplerOptions{2, 1, false})),
              ElementsAre(5, 7));
  EXPECT_THAT(untold_of(std::make_shared<DistributedSampler>(6, DistributedSamplerOptions{2, 1, false})),
              ElementsAre());
  const ElasticDistributedSamplerOptions elastic{.num_replicas = 2, .rank = 1};
  EXPECT_THAT(epochs_of(std::make_shared<ElasticDistributedSampler>(6, elastic)), ElementsAre(5, 7));
}

TEST(DataLoaderEpochs, ReachDatasetsInsideOfOthers) {
  const ToldOfEpochs a, b;
  run_epochs(DataLoader(Subset(a, {0, 3}), {.shuffle = true}), 2);
  run_epochs(DataLoader(ConcatDataset(a, b), {.shuffle = true}), 3);
  run_epochs(DataLoader(StackDataset(a, Subset(b, {0, 1, 2, 3, 4, 5})), {.shuffle = true}), 1);
  EXPECT_THAT(*a.epochs, ElementsAre(0, 1, 0, 1, 2, 0));
  EXPECT_THAT(*b.epochs, ElementsAre(0, 1, 2, 0));
}

// As a program's own dataset is, which knows nothing of loaders.
struct SetsEpochs {
  int64_t get(int64_t index) const { return 10 * (epochs->empty() ? -1 : epochs->back()) + index; }
  int64_t size() const { return 6; }
  void set_epoch(int epoch) { epochs->push_back(epoch); }
  std::shared_ptr<std::vector<int64_t>> epochs = std::make_shared<std::vector<int64_t>>();
};

// Lists, batch by batch, the epoch in which examples of SetsEpochs were read.
template <class Loader>
std::vector<int64_t> epochs_read(const Loader& loader, int count) {
  std::vector<int64_t> epochs;
  for (int i = 0; i < count; ++i) {
    for (const at::Tensor& batch : loader) epochs.push_back(batch[0].template item<int64_t>() / 10);
  }
  return epochs;
}

TEST(DataLoaderEpochs, OfTheSamplerAreToldToADatasetThatHasSetEpochAlone) {
  for (const int num_workers : {0, 2}) {
    for (const bool persistent : {false, num_workers > 0}) {
      const SetsEpochs dataset;
      const auto sampler = std::make_shared<DistributedSampler>(6, DistributedSamplerOptions{2, 1});
      const DataLoader loader(
          dataset, {.batch_size = 3, .sampler = sampler, .num_workers = num_workers, .persistent_workers = persistent});
      for (const int64_t epoch : {5, 7, 0}) {
        sampler->set_epoch(epoch);
        EXPECT_THAT(epochs_read(loader, 1), ElementsAre(epoch));
      }
      EXPECT_THAT(*dataset.epochs, ElementsAre(5, 7, 0));
    }
  }
}

// A program that begins with another epoch than 0 may have called set_epoch() itself.
TEST(DataLoaderEpochs, ThatTheLoaderCountsAreNotSetByIt) {
  const auto epochs_of = [](DataLoaderOptions options) {
    const SetsEpochs dataset;
    dataset.epochs->push_back(4);
    options.batch_size = 6;
    return epochs_read(DataLoader(Subset(dataset, {0, 1, 2, 3, 4, 5}), options), 2);
  };
  EXPECT_THAT(epochs_of({.shuffle = true}), ElementsAre(4, 4));
  EXPECT_THAT(epochs_of({}), ElementsAre(4, 4));
  const auto sampler = std::make_shared<DistributedSampler>(6, DistributedSamplerOptions{1, 0});
  EXPECT_THAT(epochs_of({.sampler = sampler}), ElementsAre(4, 4));
}

TEST(DataLoaderEpochs, ReachASetEpochInsideOfOthers) {
  const SetsEpochs a, b;
  const auto run_epoch = [](const auto& loader, int64_t epoch) {
    loader.set_epoch(epoch);
    run_epochs(loader, 1);
  };
  run_epoch(DataLoader(Subset(a, {0, 3}), {.shuffle = true}), 3);
  run_epoch(DataLoader(ConcatDataset(a, b), {.shuffle = true}), 4);
  run_epoch(DataLoader(StackDataset(a, Subset(b, {0, 1, 2, 3, 4, 5})), {.num_workers = 2}), 6);
  EXPECT_THAT(*a.epochs, ElementsAre(3, 4, 6));
  EXPECT_THAT(*b.epochs, ElementsAre(4, 6));
}

struct StreamOfEpochs {
  struct Iterator {
    std::optional<int64_t> next() { return left-- > 0 ? std::optional(epoch) : std::nullopt; }
    int64_t epoch;
    int left = 4;
  };
  Iterator iterate() const { return {epochs->empty() ? -1 : epochs->back()}; }
  std::shared_ptr<std::vector<int64_t>> epochs = std::make_shared<std::vector<int64_t>>();
};
struct ToldStream : StreamOfEpochs {
  void begin_epoch(int64_t epoch) const { epochs->push_back(epoch); }
};
struct SetStream : StreamOfEpochs {
  void set_epoch(int64_t epoch) { epochs->push_back(epoch); }
};

TEST(DataLoaderEpochs, AreToldToIterableDatasets) {
  const ToldStream plain, sharded_one, a;
  const SetStream b;
  const auto first_of = [](const auto& loader) { return (*loader.begin())[0].template item<int64_t>(); };
  const DataLoader loader(plain, {.batch_size = 2});
  EXPECT_EQ(first_of(loader), 0);
  EXPECT_EQ(first_of(loader), 1);
  const DataLoader shared(sharded(sharded_one, {.num_replicas = 2, .rank = 1}), {.batch_size = 2, .num_workers = 1});
  EXPECT_EQ(first_of(shared), 0);
  EXPECT_EQ(first_of(shared), 1);
  const DataLoader chained(ChainDataset<int64_t>(a, b), {.batch_size = 2});
  run_epochs(chained, 2);
  chained.set_epoch(5);
  run_epochs(chained, 2);
  EXPECT_THAT(*a.epochs, ElementsAre(0, 1, 5, 6));
  EXPECT_THAT(*b.epochs, ElementsAre(5, 6));
}

TEST(DataLoaderEpochs, AreThoseThatTheProgramTellsTheLoader) {
  const SetsEpochs dataset, shuffled;
  const auto sampler = std::make_shared<DistributedSampler>(6, DistributedSamplerOptions{2, 1});
  const DataLoader loader(dataset, {.batch_size = 3, .sampler = sampler});
  loader.set_epoch(5);
  EXPECT_EQ(sampler->epoch(), 5);
  EXPECT_THAT(epochs_read(loader, 1), ElementsAre(5));
  EXPECT_THAT(*dataset.epochs, ElementsAre(5));
  const DataLoader counts(shuffled, {.batch_size = 6, .shuffle = true});
  counts.set_epoch(8);
  EXPECT_THAT(epochs_read(counts, 3), ElementsAre(8, 9, 10));
}

TEST(DataLoaderEpochs, GoOnWhereAStateWasTaken) {
  const ToldOfEpochs before, after;
  const DataLoader loader(before, {.batch_size = 2, .shuffle = true, .generator = make_generator(4)});
  run_epochs(loader, 2);
  auto third = loader.begin();
  ++third;
  DataLoader resumed(after, {.batch_size = 2, .shuffle = true, .generator = make_generator(4)});
  resumed.load_state_dict(loader.state_dict());
  run_epochs(resumed, 2);
  EXPECT_THAT(*before.epochs, ElementsAre(0, 1, 2));
  EXPECT_THAT(*after.epochs, ElementsAre(2, 3));
  DataLoader begins_fourth(after, {.batch_size = 2, .shuffle = true, .generator = make_generator(4)});
  begins_fourth.load_state_dict(resumed.state_dict());
  run_epochs(begins_fourth, 1);
  EXPECT_EQ(after.epochs->back(), 4);
}

}  // namespace
}  // namespace cohort::data
