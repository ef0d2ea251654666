#include "cohort/parallel/ddp/buckets/bucket.h"

#include <gtest/gtest.h>
#include <torch/types.h>

namespace cohort::ddp {
namespace {

at::Tensor parameter_with_grad(at::IntArrayRef sizes, double value) {
  auto parameter = torch::zeros(sizes, at::requires_grad());
  parameter.mutable_grad() = torch::full(sizes, value);
  return parameter;
}

at::Tensor contents_for(const std::vector<size_t>& indices, const std::vector<at::Tensor>& parameters) {
  int64_t num_elements = 0;
  for (const size_t index : indices) num_elements += parameters[index].numel();
  return torch::empty({num_elements}, parameters[indices.front()].options().requires_grad(false));
}

TEST(Bucket, TakesAveragedGradientsAndGivesThemBack) {
  const std::vector<at::Tensor> parameters = {parameter_with_grad({2}, 4), parameter_with_grad({2, 2}, 8)};
  Bucket bucket({1, 0}, parameters, contents_for({1, 0}, parameters));
  bucket.take(0, parameters[1], 4, Averaging::kMultiply);
  bucket.take(1, parameters[0], 4, Averaging::kMultiply);
  EXPECT_TRUE(at::equal(bucket.contents(), torch::tensor({2.f, 2.f, 2.f, 2.f, 1.f, 1.f})));
  bucket.contents().add_(1);
  EXPECT_TRUE(at::equal(parameters[0].grad(), torch::full({2}, 2.0)));
  EXPECT_TRUE(at::equal(parameters[1].grad(), torch::full({2, 2}, 3.0)));
}

TEST(Bucket, TakesAGradientThatIsAlreadyThereInPlace) {
  const std::vector<at::Tensor> parameters = {parameter_with_grad({3}, 6)};
  Bucket bucket({0}, parameters, contents_for({0}, parameters));
  bucket.take(0, parameters[0], 2, Averaging::kMultiply);
  bucket.take(0, parameters[0], 2, Averaging::kMultiply);
  EXPECT_TRUE(at::equal(parameters[0].grad(), torch::full({3}, 1.5)));
  bucket.take(0, parameters[0], 3, Averaging::kDivideInPlace);
  EXPECT_TRUE(at::equal(parameters[0].grad(), torch::full({3}, 0.5)));
}

TEST(Bucket, CountsAnUndefinedGradientAsZerosAndLeavesItUndefined) {
  const std::vector<at::Tensor> parameters = {torch::zeros({2}, at::requires_grad())};
  Bucket bucket({0}, parameters, contents_for({0}, parameters));
  bucket.contents().fill_(7);
  bucket.take(0, parameters[0], 2, Averaging::kMultiply);
  EXPECT_TRUE(at::equal(bucket.contents(), torch::zeros({2})));
  EXPECT_FALSE(parameters[0].grad().defined());
}

TEST(Bucket, GradientsAreNoViewsToAutograd) {
  const std::vector<at::Tensor> parameters = {parameter_with_grad({2}, 1), parameter_with_grad({2}, 1)};
  Bucket bucket({0, 1}, parameters, contents_for({0, 1}, parameters));
  bucket.take(1, parameters[1], 2, Averaging::kMultiply);
  EXPECT_FALSE(parameters[1].grad().is_view());
  EXPECT_NO_THROW(parameters[1].mutable_grad().detach_());
  EXPECT_NO_THROW(parameters[1].mutable_grad().zero_());
}

TEST(Bucket, KeepsTheParametersStrides) {
  const auto channels_last = torch::zeros({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast).requires_grad_();
  const auto sliced = torch::zeros({4, 6}).slice(1, 0, 3).detach().requires_grad_();
  const std::vector<at::Tensor> parameters = {channels_last, sliced};
  Bucket bucket({0, 1}, parameters, contents_for({0, 1}, parameters));
  EXPECT_EQ(bucket.alias(0).strides(), channels_last.strides());
  EXPECT_EQ(bucket.alias(1).strides(), (std::vector<int64_t>{3, 1}));
}

TEST(Bucket, ScalingEqualsAtMulBitwise) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    for (const int64_t count : {0, 1, 7, 1000, 40000}) {
      const auto source = torch::randn({count}).to(dtype);
      auto destination = torch::empty_like(source);
      scale_into(destination, source, 1.0 / 3);
      EXPECT_TRUE(at::equal(destination, source * (1.0 / 3))) << dtype << " " << count;
    }
  }
}

TEST(Bucket, RefusesAnUnannouncedSparseGradient) {
  const std::vector<at::Tensor> parameters = {torch::zeros({2, 2}, at::requires_grad())};
  parameters[0].mutable_grad() = torch::eye(2).to_sparse();
  Bucket bucket({0}, parameters, contents_for({0}, parameters));
  EXPECT_THROW(bucket.take(0, parameters[0], 2, Averaging::kMultiply), c10::Error);
}

}  // namespace
}  // namespace cohort::ddp
