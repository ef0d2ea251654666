#include "cohort/data/loader/collate.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/data/example.h>

#include "tests/data/error_text.h"

namespace cohort::data {
namespace {

using test::error_text;

struct Scan {
  at::Tensor image;
  at::Tensor mask;
  std::map<std::string, at::Tensor> extra;
};

TEST(Collate, StacksTensors) {
  const at::Tensor batch = collate(std::vector<at::Tensor>{at::arange(3), at::arange(3) + 3});
  EXPECT_TRUE(batch.equal(at::arange(6).view({2, 3})));
}

TEST(Collate, NumbersBecomeTensorsAsInPython) {
  EXPECT_TRUE(collate(std::vector<int>{1, 2}).equal(at::tensor({1, 2}, at::kLong)));
  EXPECT_EQ(collate(std::vector<int>{1}).scalar_type(), at::kLong);
  EXPECT_EQ(collate(std::vector<bool>{true, false}).scalar_type(), at::kBool);
  EXPECT_EQ(collate(std::vector<double>{0.5}).scalar_type(), at::kDouble);
  EXPECT_EQ(collate(std::vector<float>{0.5f}).scalar_type(), at::kFloat);
}

TEST(Collate, JoinsEachPositionOfPairsTuplesAndVectors) {
  const std::vector<std::pair<at::Tensor, int64_t>> pairs{{at::zeros({2}), 4}, {at::zeros({2}), 5}};
  const auto [inputs, labels] = collate(pairs);
  EXPECT_EQ(inputs.sizes(), (std::vector<int64_t>{2, 2}));
  EXPECT_TRUE(labels.equal(at::tensor({4, 5}, at::kLong)));

  const std::vector<std::tuple<at::Tensor, std::string, double>> tuples{{at::zeros({1}), "a", 1.0},
                                                                        {at::zeros({1}), "b", 2.0}};
  const auto [tensor, names, values] = collate(tuples);
  EXPECT_THAT(names, testing::ElementsAre("a", "b"));
  EXPECT_EQ(values.size(0), 2);

  const std::vector<std::vector<int64_t>> lists{{1, 2, 3}, {4, 5, 6}};
  const std::vector<at::Tensor> columns = collate(lists);
  ASSERT_EQ(columns.size(), 3u);
  EXPECT_TRUE(columns[2].equal(at::tensor({3, 6}, at::kLong)));
}

TEST(Collate, JoinsEachFieldOfAPlainStruct) {
  const std::vector<Scan> scans(2, Scan{at::zeros({3}), at::zeros({1}), {{"weight", at::zeros({})}}});
  const Scan batch = collate(scans);
  EXPECT_EQ(batch.image.sizes(), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(batch.mask.sizes(), (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(batch.extra.at("weight").sizes(), (std::vector<int64_t>{2}));
}

TEST(Collate, JoinsLibTorchExamples) {
  const std::vector<torch::data::Example<>> examples(2, {at::zeros({3}), at::zeros({1})});
  const torch::data::Example<> batch = collate(examples);
  EXPECT_EQ(batch.data.size(0), 2);
  EXPECT_EQ(batch.target.size(0), 2);
}

TEST(Collate, DifferentShapesMessage) {
  EXPECT_EQ(error_text<c10::Error>([] {
              collate(std::vector<at::Tensor>{at::zeros({3}), at::zeros({4})});
            }),
            "stack expects each tensor to be equal size, but got [3] at entry 0 and [4] at entry 1");
}

// As Python's default_collate([]), with a hint.
constexpr auto kNoExamples =
    "list index out of range\n  hint: leave batches without samples out of the batch sampler, or give the DataLoader a "
    "collate function of your own";

template <typename T>
std::string text_of_none() {
  return error_text<c10::IndexError>([] { collate(std::vector<T>{}); });
}

TEST(Collate, NoExamplesMessage) {
  EXPECT_EQ(text_of_none<at::Tensor>(), kNoExamples);
  EXPECT_EQ(text_of_none<int64_t>(), kNoExamples);
  EXPECT_EQ(text_of_none<std::string>(), kNoExamples);
  EXPECT_EQ((text_of_none<std::pair<at::Tensor, int64_t>>()), kNoExamples);
  EXPECT_EQ(text_of_none<std::vector<int64_t>>(), kNoExamples);
  EXPECT_EQ((text_of_none<std::map<std::string, at::Tensor>>()), kNoExamples);
  EXPECT_EQ(text_of_none<Scan>(), kNoExamples);
  EXPECT_EQ(text_of_none<torch::data::Example<>>(), kNoExamples);
}

TEST(Collate, ListsThatAreAllEmptyAreAnEmptyList) {
  EXPECT_TRUE(collate(std::vector<std::vector<int64_t>>(2)).empty());
}

TEST(Collate, DifferentLengthsMessage) {
  EXPECT_EQ(error_text<c10::Error>([] {
              collate(std::vector<std::vector<int64_t>>{{1, 2}, {1}});
            }),
            "each element in list of batch should be of equal size");
}

}  // namespace
}  // namespace cohort::data
