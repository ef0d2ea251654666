// Gradients that are reduced where autograd has put them. Whatever DDP does is tried so by the run of this program's tests with
// COHORT_TEST_IN_PLACE=1; here are the sizes and the memory that users have.
#include "cohort/parallel/ddp/buckets/in_place.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <limits>

#include "cohort/comm/collectives/shm_empty.h"
#include "cohort/parallel/ddp/buckets/bucket.h"
#include "cohort/parallel/ddp/hooks/all_reduce_hook.h"
#include "cohort/parallel/ddp/reducer.h"
#include "tests/parallel/ddp/nets.h"
#include "tests/support/rank_processes.h"
#include "tests/support/require.h"

namespace cohort::ddp {
namespace {

using Gradients = std::vector<at::Tensor>;

constexpr size_t kDefault = size_t{64} << 10;
constexpr size_t kNever = std::numeric_limits<size_t>::max();

at::Tensor parameter_of(const at::Tensor& values) { return values.detach().requires_grad_(); }

TEST(InPlace, OnlyAGradientThatNobodyElseHolds) {
  const auto parameter = parameter_of(at::randn({4, 6}));
  auto own = at::randn({4, 6});
  EXPECT_TRUE(can_be_reduced_in_place(own, parameter));
  {
    const Gradients others = {own};
    EXPECT_FALSE(can_be_reduced_in_place(own, parameter));
  }
  {
    const auto view = own.view({24});
    EXPECT_FALSE(can_be_reduced_in_place(own, parameter));
    EXPECT_FALSE(can_be_reduced_in_place(view.view({4, 6}), parameter));
  }
  EXPECT_TRUE(can_be_reduced_in_place(own, parameter));
  EXPECT_FALSE(can_be_reduced_in_place(own.to(at::kDouble), parameter));
  EXPECT_FALSE(can_be_reduced_in_place(at::randn({4, 6}).requires_grad_(), parameter));
  EXPECT_FALSE(can_be_reduced_in_place(at::_efficientzerotensor({4, 6}), parameter));
  const auto repeated = at::empty_strided({4, 6}, {0, 1});
  ASSERT_EQ(repeated.storage().use_count(), 1u);
  EXPECT_FALSE(can_be_reduced_in_place(repeated, parameter));
}

TEST(InPlace, WhoHoldsAGradientSeesItsAverage) {
  const Gradients parameters = {parameter_of(at::zeros({3, 2}))};
  auto held = at::full({3, 2}, 6.0f);
  parameters[0].mutable_grad() = held;
  Bucket bucket({0}, parameters, at::empty({0}), {}, {1});
  bucket.take(0, parameters[0], 3, Averaging::kMultiply);
  at::Tensor(bucket.parts()[0]).fill_(2);
  EXPECT_TRUE(at::equal(held, at::full({3, 2}, 6.0f)));
  bucket.give(0, parameters[0]);
  EXPECT_TRUE(parameters[0].grad().is_same(held));
  EXPECT_TRUE(at::equal(held, at::full({3, 2}, 2.0f)));
}

TEST(InPlace, AGradientThatOthersMayStillWriteToIsReplaced) {
  const Gradients parameters = {parameter_of(at::zeros({3, 2}))};
  parameters[0].mutable_grad() = at::full({3, 2}, 6.0f);
  Bucket bucket({0}, parameters, at::empty({0}), {}, {1});
  bucket.take(0, parameters[0], 3, Averaging::kMultiply);
  const auto late = bucket.parts()[0];
  ASSERT_EQ(late.const_data_ptr(), parameters[0].grad().const_data_ptr());
  bucket.abandon(0, parameters[0]);
  at::Tensor(late).fill_(7);
  EXPECT_TRUE(at::equal(parameters[0].grad(), at::full({3, 2}, 6.0f)));
}

TEST(InPlace, TheOrderIsThatOfTheParameterWhenTheRanksComparedIt) {
  const Gradients parameters = {parameter_of(at::zeros({2, 3}))};
  Bucket bucket({0}, parameters, at::empty({0}), {}, {1});
  at::Tensor(parameters[0]).set_data(at::zeros({3, 2}).t());
  const auto gradient = at::arange(6, at::kFloat).view({2, 3});
  parameters[0].mutable_grad() = at::empty({3, 2}).t().copy_(gradient);
  bucket.take(0, parameters[0], 3, Averaging::kMultiply);
  EXPECT_TRUE(at::equal(bucket.parts()[0].flatten(), at::arange(6, at::kFloat)));
  bucket.give(0, parameters[0]);
  EXPECT_TRUE(at::equal(parameters[0].grad(), gradient));
}

TEST(InPlace, OnlyInTheOrderOfTheParametersElements) {
  const auto parameter = parameter_of(at::randn({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_FALSE(can_be_reduced_in_place(at::randn({2, 3, 4, 5}), parameter));
  EXPECT_TRUE(can_be_reduced_in_place(at::empty_like(parameter), parameter.detach()));
  EXPECT_FALSE(can_be_reduced_in_place(at::randn({2, 3, 20}), parameter));
  // The stride of a single row does not matter.
  const auto row = parameter_of(at::randn({1, 6}));
  EXPECT_TRUE(can_be_reduced_in_place(at::empty_strided({1, 6}, {100, 1}), row));
}

TEST(InPlace, ABucketGivesItsPartsInOrder) {
  const Gradients parameters = {parameter_of(at::zeros({2})), parameter_of(at::zeros({3, 2})),
                                parameter_of(at::zeros({4}))};
  for (const auto& parameter : parameters) parameter.mutable_grad() = at::full(parameter.sizes(), 6.0f);
  const auto* const memory = parameters[1].grad().const_data_ptr();
  Bucket bucket({2, 1, 0}, parameters, at::empty({6}), {}, {0, 1, 0});
  for (size_t slot = 0; slot < 3; ++slot) {
    bucket.take(slot, parameters[bucket.indices()[slot]], 3, Averaging::kMultiply);
  }
  const auto parts = bucket.parts();
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_TRUE(at::equal(parts[0], at::full({6}, 6.0f)));  // the reduction divides
  EXPECT_EQ(parts[1].const_data_ptr(), memory);
  EXPECT_EQ(parts[1].sizes(), at::IntArrayRef({3, 2}));
  for (const auto& part : parts) at::Tensor(part).fill_(static_cast<float>(part.numel()) + (part.dim() > 1 ? 1 : 0));
  for (size_t slot = 0; slot < 3; ++slot) bucket.give(slot, parameters[bucket.indices()[slot]]);
  EXPECT_TRUE(at::equal(parameters[0].grad(), at::full({2}, 6.0f)));
  EXPECT_TRUE(at::equal(parameters[1].grad(), at::full({3, 2}, 7.0f)));
  EXPECT_EQ(parameters[1].grad().const_data_ptr(), memory);
  const auto zeros = bucket.zero_parts(parameters);
  ASSERT_EQ(zeros.size(), 2u);
  EXPECT_TRUE(at::equal(zeros[0], at::zeros({6})) && at::equal(zeros[1], at::zeros({6})));
}

TEST(InPlace, AGradientThatIsMissingIsZerosAndMayStayMissing) {
  const Gradients parameters = {parameter_of(at::ones({2, 2}).t())};
  Bucket bucket({0}, parameters, at::empty({0}), {}, {1});
  bucket.take(0, parameters[0], 2, Averaging::kMultiply);
  ASSERT_EQ(bucket.parts().size(), 1u);
  EXPECT_TRUE(at::equal(bucket.parts()[0], at::zeros({4})));
  bucket.forget(0);
  EXPECT_FALSE(parameters[0].grad().defined());
  bucket.take(0, parameters[0], 2, Averaging::kMultiply);
  bucket.give(0, parameters[0]);
  EXPECT_EQ(parameters[0].grad().strides(), parameters[0].strides());
}

struct WideImpl : torch::nn::Module {
  WideImpl() {
    conv = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(32, 64, 3)));  // 72 KiB
    conv->weight.set_data(conv->weight.detach().contiguous(at::MemoryFormat::ChannelsLast));
    middle = register_module("middle", torch::nn::Linear(64, 300));  // 75 KiB
    scale = register_parameter("scale", torch::ones({100, 100}, at::kDouble));
    small = register_module("small", torch::nn::Linear(300, 4));
  }
  at::Tensor forward(const at::Tensor& x) {
    const auto folded = torch::relu(conv->forward(x)).mean(at::IntArrayRef{2, 3});
    return small->forward(torch::tanh(middle->forward(folded))) * scale.mean().to(at::kFloat);
  }
  torch::nn::Conv2d conv{nullptr};
  torch::nn::Linear middle{nullptr}, small{nullptr};
  at::Tensor scale;
};
TORCH_MODULE(Wide);

bool is_large(const at::Tensor& parameter) { return parameter.nbytes() >= kDefault; }

// What a program does with the gradients before a step.
using BeforeStep = std::function<void(Reducer&, Wide&, int64_t step)>;

// The gradients of all steps in a row. Those that this rank's autograd has put somewhere stay there if `stays`.
Gradients train_wide(size_t least_bytes, const BeforeStep& before_step, bool stays, ReducerOptions options = {}) {
  set_least_bytes_in_place(least_bytes);
  auto net = test::seeded_net<Wide>();
  Reducer reducer(net->parameters(), std::move(options));
  const auto parameters = net->parameters();
  std::vector<const void*> put(parameters.size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    parameters[i].register_hook([&put, i](const at::Tensor& gradient) { put[i] = gradient.const_data_ptr(); });
  }
  Gradients gradients;
  for (int64_t step = 0; step < 4; ++step) {
    net->zero_grad();
    if (before_step) before_step(reducer, net, step);
    reducer.prepare_forward();
    const auto output = net->forward(test::batch_of(get_rank(), step, 32 * 25).view({4, 32, 5, 5}));
    reducer.prepare({output});
    output.pow(2).mean().backward();
    for (size_t i = 0; i < parameters.size(); ++i) {
      gradients.push_back(parameters[i].grad().clone());
      const bool is_there = parameters[i].grad().const_data_ptr() == put[i];
      REQUIRE(!stays || is_there == is_large(parameters[i]));
    }
  }
  return gradients;
}

void require_same(const Gradients& actual, const Gradients& expected) {
  REQUIRE(actual.size() == expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    if (at::equal(actual[i], expected[i])) continue;
    throw std::runtime_error(c10::str("gradient ", i, " differs by ", (actual[i] - expected[i]).abs().max().item()));
  }
}

COHORT_WORKER(gradients_in_place) {
  at::set_num_threads(1);
  init_process_group({.backend = "shm", .shared_allocator = true});
  REQUIRE(comm::shares_tensors());
  const auto expected = train_wide(kNever, {}, /*stays=*/false);
  require_same(train_wide(kDefault, {}, /*stays=*/true), expected);
  ReducerOptions unused;
  unused.find_unused_parameters = true;
  require_same(train_wide(kDefault, {}, /*stays=*/true, unused), expected);

  // Gradients that some ranks have elsewhere, or others hold.
  std::vector<float> ordinary(300 * 64);
  at::Tensor view;
  const auto lend = [&](Reducer&, Wide& net, int64_t step) {
    auto& gradient = net->middle->weight.mutable_grad();
    if (get_rank() == 1) gradient = at::from_blob(ordinary.data(), {300, 64}).fill_(step);
    if (get_rank() != 1) gradient = at::full({300, 64}, static_cast<float>(step));
    if (get_rank() == 0) view = gradient.view(-1);
  };
  const auto lent = train_wide(kNever, lend, /*stays=*/false);
  require_same(train_wide(kDefault, lend, /*stays=*/false), lent);
  REQUIRE(get_rank() != 0 ||
          at::equal(view, lent[lent.size() - 4].flatten()));  // as PyTorch, which copies results back

  // A communication hook wants buckets.
  const auto register_late = [](Reducer& reducer, Wide&, int64_t step) {
    if (step == 2) reducer.register_builtin_comm_hook(BuiltinCommHookType::kAllReduce);
  };
  const auto hooked = train_wide(kNever, register_late, /*stays=*/false);
  require_same(train_wide(kDefault, register_late, /*stays=*/false), hooked);
  destroy_process_group();
}

class GradientsInPlace : public testing::TestWithParam<int> {};

TEST_P(GradientsInPlace, HaveTheBitsOfBuckets) {
  test::run_workers("gradients_in_place", {.world_size = GetParam()}).expect_success();
}

INSTANTIATE_TEST_SUITE_P(Ranks, GradientsInPlace, testing::Values(2, 3, 4));

}  // namespace
}  // namespace cohort::ddp
