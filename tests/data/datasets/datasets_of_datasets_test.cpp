#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "cohort/data/datasets/chain_dataset.h"
#include "cohort/data/datasets/concat_dataset.h"
#include "cohort/data/datasets/stack_dataset.h"
#include "cohort/data/datasets/subset.h"
#include "cohort/data/datasets/tensor_dataset.h"
#include "cohort/data/loader/data_loader.h"
#include "cohort/data/loader/iterable.h"
#include "tests/data/error_text.h"

namespace cohort::data {
namespace {

using test::error_text;
using testing::ElementsAre;

// Example i is `first` + i.
struct NumbersFrom {
  int64_t first = 0;
  int64_t count = 3;
  int64_t get(int64_t index) const { return first + index; }
  int64_t size() const { return count; }
};

// The same numbers, from a dataset of another type.
struct Doubled {
  int64_t count = 2;
  int64_t get(int64_t index) const { return 2 * index; }
  int64_t size() const { return count; }
};

struct NumberStream {
  struct Iterator {
    int64_t place = 0;
    int64_t end = 0;
    std::optional<int64_t> next() { return place < end ? std::optional(place++) : std::nullopt; }
  };
  int64_t first = 0;
  int64_t count = 0;
  Iterator iterate() const { return {first, first + count}; }
};

struct Countdown {
  struct Iterator {
    int64_t place;
    std::optional<int64_t> next() { return place > 0 ? std::optional(place--) : std::nullopt; }
  };
  int64_t from = 2;
  Iterator iterate() const { return {from}; }
};

template <typename Dataset>
concept HasWholeBatches = requires(const Dataset& dataset, const std::vector<int64_t>& indices) {
  dataset.get_batch(indices);
};

template <typename Dataset>
std::vector<int64_t> all_of(const Dataset& dataset) {
  std::vector<int64_t> result;
  for (int64_t i = 0; i < dataset.size(); ++i) result.push_back(dataset.get(i));
  return result;
}

template <typename Iterator>
std::vector<int64_t> rest_of(Iterator iterator) {
  std::vector<int64_t> result;
  while (const auto value = iterator.next()) result.push_back(*value);
  return result;
}

TEST(Subset, GivesTheExamplesOfItsIndices) {
  const Subset subset(NumbersFrom{10, 5}, {4, 0, 4});
  EXPECT_THAT(all_of(subset), ElementsAre(14, 10, 14));
  EXPECT_EQ(subset.get(-1), 14);
  EXPECT_EQ(subset.get(-2), 10);
  EXPECT_THAT(subset.indices(), ElementsAre(4, 0, 4));
  EXPECT_EQ(error_text<c10::IndexError>([&] { subset.get(3); }), "list index out of range");
  EXPECT_EQ(error_text<c10::IndexError>([&] { subset.get(-4); }), "list index out of range");
}

TEST(Subset, PassesOnWholeBatchesWhereItCan) {
  const Subset rows(std::make_shared<TensorDataset<1>>(at::arange(10) * 7), {9, 2, 5});
  const auto [batch] = rows.get_batch({2, 0});
  EXPECT_TRUE(batch.equal(at::tensor({35, 63}, at::kLong)));
  static_assert(HasWholeBatches<Subset<TensorDataset<1>>> && !HasWholeBatches<Subset<NumbersFrom>>);
  const DataLoader loader(rows, {.batch_size = 2});
  EXPECT_TRUE(std::get<0>(*loader.begin()).equal(at::tensor({63, 14}, at::kLong)));
}

TEST(RandomSplit, HasEachExampleOnce) {
  const auto parts = random_split(NumbersFrom{0, 10}, {7, 3}, make_generator(1));
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].size(), 7);
  auto all = all_of(parts[0]);
  for (const auto value : all_of(parts[1])) all.push_back(value);
  EXPECT_THAT(all, testing::UnorderedElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
  EXPECT_EQ(all_of(random_split(NumbersFrom{0, 10}, {7, 3}, make_generator(1))[1]), all_of(parts[1]));
  EXPECT_NE(all_of(random_split(NumbersFrom{0, 10}, {7, 3}, make_generator(2))[1]), all_of(parts[1]));
}

TEST(RandomSplit, TheFirstPartsGetWhatFractionsLeaveOver) {
  const auto sizes_of = [](int64_t size, const std::vector<double>& fractions) {
    std::vector<int64_t> sizes;
    for (const auto& part : random_split(NumbersFrom{0, size}, fractions)) sizes.push_back(part.size());
    return sizes;
  };
  EXPECT_THAT(sizes_of(10, {0.33, 0.33, 0.34}), ElementsAre(4, 3, 3));
  EXPECT_THAT(sizes_of(11, {0.33, 0.33, 0.34}), ElementsAre(4, 4, 3));
  EXPECT_THAT(sizes_of(10, std::vector<double>(10, 0.1)), ElementsAre(1, 1, 1, 1, 1, 1, 1, 1, 1, 1));
  EXPECT_THAT(sizes_of(1, {0.5, 0.5}), ElementsAre(1, 0));
}

TEST(RandomSplit, EmptyPartsAreWarnedOfMessage) {
  testing::internal::CaptureStderr();
  const auto parts = random_split(NumbersFrom{0, 3}, {0.25, 0.25, 0.25, 0.25});
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "[cohort] warning: Length of split at index 3 is 0. This might result in an empty dataset.\n");
  EXPECT_EQ(parts[3].size(), 0);
}

TEST(RandomSplit, LengthsThatAddUpToOneAreFractions) { EXPECT_EQ(random_split(NumbersFrom{0, 6}, {1})[0].size(), 6); }

TEST(RandomSplit, MistakesMessages) {
  const auto wrong_sum = "Sum of input lengths does not equal the length of the input dataset!";
  EXPECT_EQ(error_text<c10::ValueError>([] { random_split(NumbersFrom{0, 6}, {2, 3}); }), wrong_sum);
  EXPECT_EQ(error_text<c10::ValueError>([] { random_split(NumbersFrom{0, 6}, {0.5, 0.4}); }), wrong_sum);
  EXPECT_EQ(error_text<c10::ValueError>([] {
              random_split(NumbersFrom{0, 6}, {1.5, -0.5});
            }),
            "Fraction at index 0 is not between 0 and 1");
  // What it would be with 64 bits is 6.
  EXPECT_EQ(error_text<c10::ValueError>([] {
              random_split(NumbersFrom{0, 6}, {INT64_MAX, INT64_MAX, int64_t{8}});
            }),
            wrong_sum);
  EXPECT_EQ(error_text<c10::ValueError>([] {
              random_split(NumbersFrom{0, 6}, {-1, 7});
            }),
            "[cohort] Length at index 0 is negative: -1");
}

TEST(ConcatDataset, HasDatasetsOneAfterTheOther) {
  const ConcatDataset all(std::vector{NumbersFrom{10, 2}, NumbersFrom{20, 0}, NumbersFrom{30, 3}});
  EXPECT_THAT(all_of(all), ElementsAre(10, 11, 30, 31, 32));
  EXPECT_THAT(all.cumulative_sizes(), ElementsAre(2, 2, 5));
  EXPECT_EQ(all.get(-1), 32);
  EXPECT_EQ(all.get(-5), 10);
}

TEST(ConcatDataset, TakesDatasetsOfSeveralTypes) {
  const auto shared = std::make_shared<Doubled>();
  const ConcatDataset all(NumbersFrom{5, 1}, shared, Doubled{3});
  EXPECT_THAT(all_of(all), ElementsAre(5, 0, 2, 0, 2, 4));
  const DataLoader loader(all, {.batch_size = 6, .num_workers = 1});
  EXPECT_TRUE(loader.begin()->equal(at::tensor({5, 0, 2, 0, 2, 4}, at::kLong)));
}

TEST(ConcatDataset, SizesThatDoNotAddUpAreTheLargestNumber) {
  const ConcatDataset all(NumbersFrom{10, 2}, NumbersFrom{20, INT64_MAX}, NumbersFrom{0, 5});
  EXPECT_EQ(all.size(), INT64_MAX);
  EXPECT_EQ(all.get(1), 11);
  EXPECT_EQ(all.get(7), 25);
}

TEST(ConcatDataset, MistakesMessages) {
  EXPECT_EQ(error_text<c10::ValueError>([] { ConcatDataset(std::vector<NumbersFrom>{}); }),
            "datasets should not be an empty iterable");
  const ConcatDataset all(NumbersFrom{0, 2}, NumbersFrom{0, 1});
  EXPECT_EQ(error_text<c10::ValueError>([&] { all.get(-4); }),
            "absolute value of index should not exceed dataset length");
  EXPECT_EQ(error_text<c10::IndexError>([&] { all.get(3); }), "list index out of range");
}

struct ImageAndLabel {
  at::Tensor image;
  at::Tensor label;
};

TEST(StackDataset, HasDatasetsSideBySide) {
  const StackDataset both(NumbersFrom{10, 3}, std::make_shared<Doubled>(Doubled{3}));
  EXPECT_EQ(both.size(), 3);
  EXPECT_EQ(both.get(2), std::tuple(12, 4));
  const DataLoader loader(both, {.batch_size = 2});
  const auto [first, second] = *loader.begin();
  EXPECT_TRUE(first.equal(at::tensor({10, 11}, at::kLong)));
  EXPECT_TRUE(second.equal(at::tensor({0, 2}, at::kLong)));
}

// An inner dataset of tensors, not of tuples of tensors, which reads whole batches.
struct TensorRows {
  at::Tensor rows;
  at::Tensor get(int64_t index) const { return rows[index]; }
  at::Tensor get_batch(const std::vector<int64_t>& indices) const { return rows.index_select(0, at::tensor(indices)); }
  int64_t size() const { return rows.size(0); }
};

TEST(StackDataset, FillsTheFieldsOfAStruct) {
  const auto both = stack_as<ImageAndLabel>(TensorRows{at::arange(4) * 3}, TensorRows{at::arange(4) + 50});
  EXPECT_EQ(both.get(3).image.item<int64_t>(), 9);
  EXPECT_EQ(both.get(3).label.item<int64_t>(), 53);
  const ImageAndLabel batch = both.get_batch({2, 1});
  EXPECT_TRUE(batch.image.equal(at::tensor({6, 3}, at::kLong)));
  EXPECT_TRUE(batch.label.equal(at::tensor({52, 51}, at::kLong)));
  const DataLoader loader(both, {.batch_size = 4});
  EXPECT_TRUE(loader.begin()->label.equal(at::arange(50, 54)));
}

TEST(StackDataset, ReadsWholeBatchesOnlyIfAllDo) {
  const StackDataset rows(TensorRows{at::arange(4)}, TensorRows{at::arange(4) + 4});
  EXPECT_TRUE(std::get<1>(rows.get_batch({0, 3})).equal(at::tensor({4, 7}, at::kLong)));
  static_assert(!HasWholeBatches<StackDataset<TensorRows, NumbersFrom>>);
}

TEST(StackDataset, SizeMismatchMessage) {
  EXPECT_EQ(error_text<c10::ValueError>([] {
              StackDataset(NumbersFrom{0, 3}, Doubled{2});
            }),
            "Size mismatch between datasets");
}

TEST(DatasetsOfDatasets, NullPointersMessages) {
  const std::shared_ptr<NumbersFrom> none;
  const std::shared_ptr<NumberStream> no_stream;
  const auto text = [](auto make) { return error_text<c10::ValueError>(make); };
  const std::string rest = " needs a dataset, but got a null pointer";
  EXPECT_EQ(text([&] { Subset subset(none, {0}); }), "[cohort] Subset" + rest);
  EXPECT_EQ(text([&] { random_split(none, {1, 2}); }), "[cohort] random_split" + rest);
  EXPECT_EQ(text([&] { ConcatDataset all(NumbersFrom{}, none); }), "[cohort] ConcatDataset" + rest);
  EXPECT_EQ(text([&] { ConcatDataset all(std::vector{none}); }), "[cohort] ConcatDataset" + rest);
  EXPECT_EQ(text([&] { StackDataset both(NumbersFrom{}, none); }), "[cohort] StackDataset" + rest);
  EXPECT_EQ(text([&] { ChainDataset all(NumberStream{}, no_stream); }), "[cohort] ChainDataset" + rest);
  EXPECT_EQ(text([&] { sharded(no_stream, {.num_replicas = 1, .rank = 0}); }), "[cohort] sharded" + rest);
}

TEST(ChainDataset, HasIterablesOneAfterTheOther) {
  const ChainDataset same(std::vector{NumberStream{0, 2}, NumberStream{5, 0}, NumberStream{7, 1}});
  EXPECT_THAT(rest_of(same.iterate()), ElementsAre(0, 1, 7));
  const ChainDataset mixed(Countdown{2}, std::make_shared<NumberStream>(NumberStream{4, 2}));
  EXPECT_THAT(rest_of(mixed.iterate()), ElementsAre(2, 1, 4, 5));
  EXPECT_THAT(rest_of(ChainDataset(std::vector<NumberStream>{}).iterate()), ElementsAre());
  const DataLoader loader(mixed, {.batch_size = 3});
  EXPECT_TRUE(loader.begin()->equal(at::tensor({2, 1, 4}, at::kLong)));
}

}  // namespace
}  // namespace cohort::data
