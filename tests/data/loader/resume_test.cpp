#include <ATen/ops/arange.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <random>
#include <set>

#include "cohort/data/datasets/tensor_dataset.h"
#include "cohort/data/loader/data_loader.h"
#include "cohort/data/samplers/distributed_sampler.h"
#include "cohort/data/samplers/elastic_distributed_sampler.h"
#include "cohort/data/samplers/length_bucket_sampler.h"
#include "tests/data/error_text.h"

namespace cohort::data {
namespace {

using test::error_text;
using Loader = DataLoader<TensorDataset<1>>;
using Seen = std::vector<std::vector<int64_t>>;

Seen values_of(Epoch<Loader::Batch> epoch, int64_t num_batches = 1000) {
  Seen seen;
  for (int64_t i = 0; i < num_batches; ++i) {
    const auto batch = epoch.next();
    if (!batch) break;
    const auto& [rows] = *batch;
    seen.emplace_back(rows.const_data_ptr<int64_t>(), rows.const_data_ptr<int64_t>() + rows.numel());
  }
  return seen;
}

Seen joined(Seen one, const Seen& other) {
  one.insert(one.end(), other.begin(), other.end());
  return one;
}

TensorDataset<1> numbers(int64_t count) { return TensorDataset(at::arange(count)); }

std::vector<int64_t> some_lengths() {
  std::vector<int64_t> lengths(23);
  for (size_t i = 0; i < lengths.size(); ++i) lengths[i] = static_cast<int64_t>(i * 7 % 11);
  return lengths;
}

// A loader that is made anew after a restart, with generators in a state that they had never had.
struct Kind {
  std::string name;
  std::function<DataLoaderOptions()> make;
};

std::vector<Kind> kinds() {
  const auto generator = [] { return make_generator(static_cast<int64_t>(std::random_device()())); };
  return {
      {"in_order", [] { return DataLoaderOptions{.batch_size = 3}; }},
      {"shuffled", [] { return DataLoaderOptions{.batch_size = 3, .shuffle = true, .num_workers = 2}; }},
      {"own_generator", [=] { return DataLoaderOptions{.batch_size = 3, .shuffle = true, .generator = generator()}; }},
      {"dropped", [] { return DataLoaderOptions{.batch_size = 3, .shuffle = true, .drop_last = true}; }},
      {"replacement",
       [=] {
         const RandomSamplerOptions options{.replacement = true, .num_samples = 40, .generator = generator()};
         return DataLoaderOptions{.batch_size = 3, .sampler = std::make_shared<RandomSampler>(23, options)};
       }},
      {"subset",
       [] {
         return DataLoaderOptions{
             .batch_size = 2, .sampler = std::make_shared<SubsetRandomSampler>(std::vector<int64_t>{3, 9, 4, 22, 1})};
       }},
      {"weighted",
       [=] {
         const std::vector<double> weights(23, 0.5);
         using Replacement = WeightedRandomSampler::Replacement;
         return DataLoaderOptions{
             .batch_size = 4,
             .sampler = std::make_shared<WeightedRandomSampler>(weights, 15, Replacement::kNo, generator())};
       }},
      {"distributed",
       [] {
         const DistributedSamplerOptions options{.num_replicas = 2, .rank = 1};
         return DataLoaderOptions{.batch_size = 2, .sampler = std::make_shared<DistributedSampler>(23, options)};
       }},
      {"buckets",
       [=] {
         const LengthBucketSamplerOptions options{.pool_batches = 3, .generator = generator()};
         return DataLoaderOptions{.batch_sampler = std::make_shared<LengthBucketSampler>(some_lengths(), 3, options)};
       }},
  };
}

class Resumed : public testing::TestWithParam<Kind> {};

TEST_P(Resumed, AnEpochThatWasEndedIsFollowedByTheNextOne) {
  const Loader loader(numbers(23), GetParam().make());
  values_of(loader.start(), 2);
  loader.end_epoch();
  const auto state = loader.state_dict();
  at::manual_seed(3);  // where nobody gave a generator it is LibTorch's, which is the program's to restore
  const auto next = values_of(loader.start());
  Loader other(numbers(23), GetParam().make());
  other.load_state_dict(state);
  at::manual_seed(3);
  EXPECT_EQ(values_of(other.start()), next);
  values_of(other.start(), 2);  // whose state is that of its middle again
  Loader third(numbers(23), GetParam().make());
  third.load_state_dict(other.state_dict());
  EXPECT_EQ(values_of(third.start()).size(), next.size() - 2);
}

TEST_P(Resumed, GoesOnAfterAnyBatchAndThenWithTheNextEpoch) {
  const auto dataset = std::make_shared<TensorDataset<1>>(numbers(23));
  for (int64_t num_taken = 0; num_taken <= 6; ++num_taken) {
    const Loader first(dataset, GetParam().make());
    auto epoch = first.start();
    for (int64_t i = 0; i < num_taken; ++i) {
      if (!epoch.next()) return;  // what follows is the next epoch
    }
    const auto state = first.state_dict();
    const auto rest = values_of(std::move(epoch));
    Loader second(dataset, GetParam().make());
    second.load_state_dict(state);
    EXPECT_EQ(second.state_dict().size(), state.size()) << "before it has begun";
    const auto resumed = values_of(second.start());
    EXPECT_EQ(resumed, rest) << "after " << num_taken << " batches";
  }
}

TEST_P(Resumed, GoesOnTwice) {
  const auto dataset = std::make_shared<TensorDataset<1>>(numbers(23));
  const Loader first(dataset, GetParam().make());
  auto epoch = first.start();
  epoch.next();
  const auto state = first.state_dict();
  const auto rest = values_of(std::move(epoch));
  Loader second(dataset, GetParam().make());
  second.load_state_dict(state);
  auto again = second.start();
  const auto batch = again.next();
  ASSERT_TRUE(batch);
  const auto& [rows] = *batch;
  const Seen middle = {{rows.const_data_ptr<int64_t>(), rows.const_data_ptr<int64_t>() + rows.numel()}};
  Loader third(dataset, GetParam().make());
  third.load_state_dict(second.state_dict());
  EXPECT_EQ(joined(middle, values_of(third.start())), rest);
}

INSTANTIATE_TEST_SUITE_P(Samplers, Resumed, testing::ValuesIn(kinds()),
                         [](const auto& info) { return info.param.name; });

TEST(Resumed, AnEpochThatIsOverIsFollowedByTheNext) {
  const auto dataset = std::make_shared<TensorDataset<1>>(numbers(10));
  const auto generator = make_generator(5);
  const Loader first(dataset, {.batch_size = 4, .shuffle = true, .generator = generator});
  values_of(first.start());
  const auto state = first.state_dict();
  const auto second_epoch = values_of(first.start());
  Loader again(dataset, {.batch_size = 4, .shuffle = true, .generator = make_generator(77)});
  again.load_state_dict(state);
  EXPECT_EQ(values_of(again.start()), second_epoch);
}

TEST(Resumed, WorkersHaveTheSeedsOfTheEpoch) {
  const auto dataset = std::make_shared<TensorDataset<1>>(numbers(10));
  const auto seed_of = [](const std::vector<std::tuple<at::Tensor>>&) { return worker_info()->seed; };
  using Seeds = DataLoader<TensorDataset<1>, decltype(seed_of)>;
  const Seeds first(dataset, {.batch_size = 2, .num_workers = 1}, seed_of);
  auto epoch = first.start();
  const auto seed = *epoch.next();
  Seeds second(dataset, {.batch_size = 2, .num_workers = 1}, seed_of);
  second.load_state_dict(first.state_dict());
  EXPECT_EQ(*second.start().next(), seed);
}

TEST(Resumed, Messages) {
  Loader loader(numbers(10), {.batch_size = 4});
  EXPECT_EQ(error_text<c10::ValueError>([&] { loader.load_state_dict({}); }),
            "[cohort] the state dict of a DataLoader has no 'num_samples_given'");
  EXPECT_EQ(error_text<c10::ValueError>([&] {
              loader.load_state_dict({{"num_samples_given", at::arange(2)}});
            }),
            "[cohort] 'num_samples_given' in the state dict of a DataLoader is not a whole number >= 0");
  EXPECT_EQ(error_text<c10::ValueError>([&] {
              loader.load_state_dict({{"num_samples_given", at::arange(11, 12)}});
            }),
            "[cohort] the state dict of a DataLoader has given 11 samples of an epoch, but this one has 10");
  Loader shuffled(numbers(10), {.batch_size = 4, .shuffle = true});
  auto state = shuffled.state_dict();
  state["generator"] = at::arange(3);
  EXPECT_THAT(error_text<c10::ValueError>([&] { shuffled.load_state_dict(state); }),
              testing::StartsWith(
                  "[cohort] 'generator' in the state dict of a DataLoader is not the state of a CPU generator: "));
}

// Restarts at random moments with random numbers of ranks: each sample comes once per epoch.
TEST(Elastic, EverySampleExactlyOnceWhateverTheNumbersOfRanks) {
  std::mt19937 random(2024);
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (int trial = 0; trial < 60; ++trial) {
    const int64_t size = pick(0, 90);
    const int64_t epoch = pick(0, 3);
    const auto dataset = std::make_shared<TensorDataset<1>>(numbers(size));
    std::multiset<int64_t> seen;
    std::optional<StateDict> state;
    bool is_over = false;
    while (!is_over) {
      const int64_t num_ranks = pick(1, 5);
      const int64_t batch_size = pick(1, 6);
      const int64_t num_steps = pick(0, 4);
      is_over = true;
      std::optional<StateDict> next;
      for (int64_t rank = 0; rank < num_ranks; ++rank) {
        const auto sampler = std::make_shared<ElasticDistributedSampler>(
            size, ElasticDistributedSamplerOptions{.num_replicas = num_ranks, .rank = rank, .seed = 3});
        Loader loader(dataset, {.batch_size = batch_size, .sampler = sampler});
        if (state) loader.load_state_dict(*state);
        sampler->set_epoch(epoch);
        auto batches = loader.start();
        for (int64_t step = 0; step < num_steps; ++step) {
          const auto batch = batches.next();
          if (!batch) break;
          const auto& [rows] = *batch;
          for (int64_t i = 0; i < rows.numel(); ++i) seen.insert(rows[i].item<int64_t>());
        }
        if (rank == 0) next = loader.state_dict();
        is_over = is_over && !batches.next();
      }
      state = next;
    }
    std::multiset<int64_t> all;
    for (int64_t i = 0; i < size; ++i) all.insert(i);
    ASSERT_EQ(seen, all) << "trial " << trial;
  }
}

TEST(Elastic, WithoutARestartItsOrderIsThatOfDistributedSampler) {
  for (const int64_t rank : {0, 1, 2}) {
    ElasticDistributedSampler elastic(30, {.num_replicas = 3, .rank = rank, .seed = 4});
    DistributedSampler fixed(30, {.num_replicas = 3, .rank = rank, .seed = 4});
    elastic.set_epoch(2);
    fixed.set_epoch(2);
    EXPECT_EQ(elastic.indices(), fixed.indices());
  }
}

TEST(Elastic, RemaindersAreKeptPaddedOrDropped) {
  const auto sizes = [](Remainder remainder) {
    std::vector<size_t> result;
    for (const int64_t rank : {0, 1, 2}) {
      ElasticDistributedSampler sampler(11,
                                        {.num_replicas = 3, .rank = rank, .shuffle = false, .remainder = remainder});
      EXPECT_EQ(sampler.size(), static_cast<int64_t>(sampler.indices().size()));
      result.push_back(sampler.indices().size());
    }
    return result;
  };
  EXPECT_THAT(sizes(Remainder::kKeep), testing::ElementsAre(4, 4, 3));
  EXPECT_THAT(sizes(Remainder::kPad), testing::ElementsAre(4, 4, 4));
  EXPECT_THAT(sizes(Remainder::kDrop), testing::ElementsAre(3, 3, 3));
  ElasticDistributedSampler last(11, {.num_replicas = 3, .rank = 2, .shuffle = false, .remainder = Remainder::kPad});
  EXPECT_THAT(last.indices(), testing::ElementsAre(2, 5, 8, 0));
}

TEST(Elastic, AnotherEpochBeginsAtItsBeginning) {
  ElasticDistributedSampler sampler(10, {.num_replicas = 1, .rank = 0, .shuffle = false});
  sampler.indices();
  const auto state = sampler.state_dict(4);
  ElasticDistributedSampler same(10, {.num_replicas = 1, .rank = 0, .shuffle = false});
  EXPECT_EQ(same.load_state_dict(state), 0);
  same.set_epoch(0);
  EXPECT_EQ(same.size(), 6);
  same.set_epoch(1);
  EXPECT_EQ(same.size(), 10);
  EXPECT_EQ(sampler.state_dict(std::nullopt).at("epoch").item<int64_t>(), 1);
}

TEST(Elastic, MoreRanksThanNumbersCanBeAddedTo) {
  for (const auto remainder : {Remainder::kKeep, Remainder::kPad}) {
    ElasticDistributedSampler sampler(5,
                                      {.num_replicas = INT64_MAX, .rank = 2, .shuffle = false, .remainder = remainder});
    EXPECT_EQ(sampler.size(), 1);
    EXPECT_THAT(sampler.indices(), ElementsAre(2));
    EXPECT_EQ(sampler.state_dict(1).at("num_samples_seen_by_all_ranks").item<int64_t>(), 5);
  }
}

TEST(Elastic, Messages) {
  EXPECT_EQ(error_text<c10::ValueError>([] { ElasticDistributedSampler(4, {.num_replicas = 2, .rank = 2}); }),
            "Invalid rank 2, rank should be in the interval [0, 1]");
  ElasticDistributedSampler small(4, {.num_replicas = 1, .rank = 0});
  ElasticDistributedSampler large(9, {.num_replicas = 1, .rank = 0});
  large.indices();
  EXPECT_EQ(error_text<c10::ValueError>([&] { small.load_state_dict(large.state_dict(7)); }),
            "[cohort] the state dict of an ElasticDistributedSampler has seen 7 of 9 samples, but this dataset has 4");
}

TEST(LengthBuckets, AreAboutEquallyLongAndHaveEverySampleOnce) {
  std::vector<int64_t> lengths(200);
  for (size_t i = 0; i < lengths.size(); ++i) lengths[i] = static_cast<int64_t>(i * 37 % 101);
  LengthBucketSampler sampler(lengths, 10, {.generator = make_generator(1)});
  const auto batches = sampler.batches();
  EXPECT_EQ(static_cast<int64_t>(batches.size()), sampler.size());
  std::set<int64_t> seen;
  for (const auto& batch : batches) {
    int64_t least = 1000, most = 0;
    for (const auto index : batch) {
      seen.insert(index);
      least = std::min(least, lengths[static_cast<size_t>(index)]);
      most = std::max(most, lengths[static_cast<size_t>(index)]);
    }
    EXPECT_LE(most - least, 5);
  }
  EXPECT_EQ(seen.size(), lengths.size());
  EXPECT_NE(sampler.batches(), batches);
}

TEST(LengthBuckets, APoolOfAnySizeIsTheWholeEpoch) {
  const std::vector<int64_t> lengths{3, 1, 5, 2, 4};
  const auto order = std::make_shared<SequentialSampler>(5);
  for (const int64_t pool_batches : {int64_t{3}, INT64_MAX / 2, INT64_MAX}) {
    LengthBucketSampler sampler(lengths, 2, {.sampler = order, .pool_batches = pool_batches});
    EXPECT_THAT(sampler.batches(), testing::UnorderedElementsAre(ElementsAre(1, 3), ElementsAre(0, 4), ElementsAre(2)));
  }
  LengthBucketSampler one(lengths, INT64_MAX, {.sampler = order});
  EXPECT_EQ(one.size(), 1);
  EXPECT_THAT(one.batches(), ElementsAre(ElementsAre(1, 3, 0, 4, 2)));
}

TEST(LengthBuckets, Messages) {
  EXPECT_EQ(error_text<c10::ValueError>([] {
              LengthBucketSampler({1, 2}, 0);
            }),
            "batch_size should be a positive integer value, but got batch_size=0");
  LengthBucketSampler sampler({1, 2}, 1, {.sampler = std::make_shared<SequentialSampler>(3)});
  EXPECT_EQ(error_text<c10::IndexError>([&] { sampler.batches(); }),
            "[cohort] LengthBucketSampler has 2 lengths, but none of example 2");
}

}  // namespace
}  // namespace cohort::data
