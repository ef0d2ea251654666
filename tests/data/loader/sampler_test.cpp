#include "cohort/data/samplers/sampler.h"

#include <ATen/Context.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "tests/data/error_text.h"

namespace cohort::data {
namespace {

using test::error_text;
using testing::ElementsAre;

TEST(SequentialSampler, GivesEveryIndexInOrder) {
  SequentialSampler sampler(4);
  EXPECT_THAT(sampler.indices(), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(sampler.size(), 4);
  EXPECT_TRUE(SequentialSampler(0).indices().empty());
}

TEST(RandomSampler, GivesEachIndexOnceAndAnotherOrderEachEpoch) {
  RandomSampler sampler(50, {.generator = make_generator(1)});
  const auto first = sampler.indices();
  const auto second = sampler.indices();
  EXPECT_NE(first, second);
  EXPECT_EQ(std::set<int64_t>(first.begin(), first.end()).size(), 50u);
  EXPECT_EQ(std::set<int64_t>(second.begin(), second.end()).size(), 50u);
}

TEST(RandomSampler, RepeatsWithTheSameSeed) {
  RandomSampler a(20, {.generator = make_generator(7)});
  RandomSampler b(20, {.generator = make_generator(7)});
  EXPECT_EQ(a.indices(), b.indices());
}

TEST(RandomSampler, MoreSamplesThanExamplesAreSeveralPermutations) {
  RandomSampler sampler(3, {.num_samples = 7, .generator = make_generator(0)});
  const auto indices = sampler.indices();
  ASSERT_EQ(indices.size(), 7u);
  EXPECT_EQ(std::set<int64_t>(indices.begin(), indices.begin() + 3), (std::set<int64_t>{0, 1, 2}));
  EXPECT_EQ(std::set<int64_t>(indices.begin() + 3, indices.begin() + 6), (std::set<int64_t>{0, 1, 2}));
}

TEST(RandomSampler, WithReplacementStaysInRange) {
  RandomSampler sampler(5, {.replacement = true, .num_samples = 100, .generator = make_generator(0)});
  const auto indices = sampler.indices();
  ASSERT_EQ(indices.size(), 100u);
  EXPECT_EQ(*std::min_element(indices.begin(), indices.end()), 0);
  EXPECT_EQ(*std::max_element(indices.begin(), indices.end()), 4);
}

TEST(RandomSampler, EmptyDatasetMessage) {
  EXPECT_EQ(error_text<c10::ValueError>([] { RandomSampler sampler(0); }),
            "num_samples should be a positive integer value, but got num_samples=0");
}

TEST(SubsetRandomSampler, ShufflesTheGivenIndices) {
  SubsetRandomSampler sampler({10, 20, 30}, make_generator(3));
  auto indices = sampler.indices();
  std::sort(indices.begin(), indices.end());
  EXPECT_THAT(indices, ElementsAre(10, 20, 30));
}

TEST(WeightedRandomSampler, NeverDrawsWeightZero) {
  WeightedRandomSampler sampler({0.0, 1.0, 0.0, 3.0}, 40, WeightedRandomSampler::Replacement::kYes, make_generator(3));
  const auto indices = sampler.indices();
  EXPECT_EQ(std::set<int64_t>(indices.begin(), indices.end()), (std::set<int64_t>{1, 3}));
}

TEST(WeightedRandomSampler, NoSamplesMessage) {
  EXPECT_EQ(error_text<c10::ValueError>([] { WeightedRandomSampler({1.0}, 0); }),
            "num_samples should be a positive integer value, but got num_samples=0");
}

TEST(BatchSampler, KeepsOrDropsTheLastBatch) {
  BatchSampler keep(std::make_shared<SequentialSampler>(5), 2);
  EXPECT_THAT(keep.batches(), ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3), ElementsAre(4)));
  EXPECT_EQ(keep.size(), 3);
  BatchSampler drop(std::make_shared<SequentialSampler>(5), 2, LastBatch::kDrop);
  EXPECT_THAT(drop.batches(), ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  EXPECT_EQ(drop.size(), 2);
}

TEST(BatchSampler, ABatchOfAnySizeIsTheWholeEpoch) {
  BatchSampler sampler(std::make_shared<SequentialSampler>(5), INT64_MAX);
  EXPECT_EQ(sampler.size(), 1);
  EXPECT_THAT(sampler.batches(), ElementsAre(ElementsAre(0, 1, 2, 3, 4)));
  StateDict begun;
  set_number(begun, "num_samples_given", 3);
  sampler.load_state_dict(begun);
  EXPECT_THAT(sampler.batches(), ElementsAre(ElementsAre(3, 4)));
  EXPECT_EQ(sampler.state_dict(1).at("num_samples_given").item<int64_t>(), 5);
}

TEST(BatchSampler, BatchSizeMessage) {
  EXPECT_EQ(error_text<c10::ValueError>([] { BatchSampler(std::make_shared<SequentialSampler>(5), 0); }),
            "batch_size should be a positive integer value, but got batch_size=0");
}

}  // namespace
}  // namespace cohort::data
