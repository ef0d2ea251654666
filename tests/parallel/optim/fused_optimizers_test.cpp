// Against LibTorch's optimizers. Bit by bit against Python's with fused=True: tests/e2e/parallel/fused_optimizers_test.py.
#include "cohort/parallel/optim/fused_optimizers.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/schedulers/step_lr.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>

#include <functional>
#include <memory>
#include <sstream>

#include "tests/support/require.h"

namespace cohort::optim {
namespace {

using test::error_of;
using Parameters = std::vector<at::Tensor>;
using Groups = std::vector<torch::optim::OptimizerParamGroup>;

// Of two dtypes, one with its dimensions exchanged, one without elements, one that never has a gradient.
Parameters fresh_parameters() {
  at::manual_seed(11);
  Parameters values{at::randn({3, 5}),           at::randn({7}),    at::randn({}), at::randn({4, 6}).t(),
                    at::randn({5}, at::kDouble), at::zeros({0, 3}), at::ones({2})};
  for (auto& value : values) value = value.detach().set_requires_grad(true);
  return values;
}

// The second parameter has one in every other step.
void set_gradients(const Parameters& parameters, int step) {
  at::manual_seed(100 + step);
  for (size_t i = 0; i + 1 < parameters.size(); ++i) {
    const auto gradient = at::randn(parameters[i].sizes(), parameters[i].options().requires_grad(false));
    parameters[i].mutable_grad() = i == 1 && step % 2 == 1 ? at::Tensor() : gradient;
  }
}

void train(torch::optim::Optimizer& optimizer, const Parameters& parameters, int begin, int end) {
  for (int step = begin; step < end; ++step) {
    set_gradients(parameters, step);
    optimizer.step();
  }
}

// The second group has options of its own.
template <class Optimizer, class Options>
std::unique_ptr<torch::optim::Optimizer> make(const Parameters& parameters, const Options& options,
                                              const Options& of_the_second) {
  Groups groups;
  groups.emplace_back(Parameters(parameters.begin(), parameters.begin() + 2), std::make_unique<Options>(options));
  groups.emplace_back(Parameters(parameters.begin() + 2, parameters.end()), std::make_unique<Options>(of_the_second));
  return std::make_unique<Optimizer>(groups, options);
}

using AdamOptions = torch::optim::AdamOptions;
using AdamWOptions = torch::optim::AdamWOptions;
using SGDOptions = torch::optim::SGDOptions;

struct Kind {
  const char* name;
  std::function<std::unique_ptr<torch::optim::Optimizer>(const Parameters&, bool is_ours)> make;
};

template <class Ours, class Theirs, class Options>
Kind kind(const char* name, const Options& options, const Options& of_the_second) {
  return {name, [=](const Parameters& parameters, bool is_ours) {
            return is_ours ? make<Ours>(parameters, options, of_the_second)
                           : make<Theirs>(parameters, options, of_the_second);
          }};
}

class FusedOptimizers : public testing::TestWithParam<Kind> {};

Parameters copies(const Parameters& tensors) {
  Parameters result;
  for (const auto& tensor : tensors) result.push_back(tensor.detach().clone());
  return result;
}

void expect_close(const Parameters& ours, const Parameters& theirs) {
  for (size_t i = 0; i < ours.size(); ++i) {
    EXPECT_TRUE(at::allclose(ours[i], theirs[i], 1e-5, 1e-6)) << "parameter " << i << "\n" << ours[i] << theirs[i];
  }
}

TEST_P(FusedOptimizers, TrainAsLibTorchs) {
  const auto ours = fresh_parameters();
  const auto theirs = fresh_parameters();
  const auto optimizer = GetParam().make(ours, true);
  const auto reference = GetParam().make(theirs, false);
  train(*optimizer, ours, 0, 20);
  train(*reference, theirs, 0, 20);
  expect_close(ours, theirs);
  EXPECT_FALSE(at::allclose(ours[0], fresh_parameters()[0], 1e-2));
  EXPECT_TRUE(at::equal(ours.back(), at::ones({2})));
  EXPECT_EQ(optimizer->state().size(), reference->state().size());
}

TEST_P(FusedOptimizers, StatesLoadIntoEachOther) {
  const auto uninterrupted = fresh_parameters();
  const auto reference = GetParam().make(uninterrupted, false);
  train(*reference, uninterrupted, 0, 12);
  for (const bool ours_is_first : {true, false}) {
    const auto parameters = fresh_parameters();
    std::stringstream file;
    {
      const auto first = GetParam().make(parameters, ours_is_first);
      train(*first, parameters, 0, 6);
      torch::save(*first, file);
    }
    const auto second = GetParam().make(parameters, !ours_is_first);
    torch::load(*second, file);
    train(*second, parameters, 6, 12);
    expect_close(parameters, uninterrupted);
  }
}

TEST_P(FusedOptimizers, BumpVersionsOfWhatTheyUpdate) {
  const auto parameters = fresh_parameters();
  const auto optimizer = GetParam().make(parameters, true);
  for (int step = 0; step < 2; ++step) {
    std::vector<uint32_t> before;
    for (const auto& parameter : parameters) before.push_back(parameter._version());
    set_gradients(parameters, step);
    optimizer->step();
    for (size_t i = 0; i < parameters.size(); ++i) {
      EXPECT_EQ(parameters[i]._version() > before[i], parameters[i].grad().defined()) << i;
    }
  }
}

TEST(FusedAdamW, BackwardThroughAGraphFromBeforeTheStepMessage) {
  const auto parameter = at::ones({2}).set_requires_grad(true);
  parameter.mutable_grad() = at::ones({2});
  const auto loss = (parameter * parameter).sum();
  AdamW({parameter}, AdamWOptions(0.1)).step();
  EXPECT_TRUE(error_of([&] { loss.backward(); })
                  .starts_with("one of the variables needed for gradient computation has been modified by an inplace "
                               "operation: [CPUFloatType [2]] is at version 2; expected version 1 instead."));
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, FusedOptimizers,
    testing::Values(kind<AdamW, torch::optim::AdamW>("adamw", AdamWOptions(0.02), AdamWOptions(0.01).weight_decay(0.3)),
                    kind<AdamW, torch::optim::AdamW>("amsgrad", AdamWOptions(0.02).betas({0.8, 0.9}),
                                                     AdamWOptions(0.01).amsgrad(true).eps(1e-4)),
                    kind<Adam, torch::optim::Adam>("adam", AdamOptions(0.02),
                                                   AdamOptions(0.01).weight_decay(0.3).amsgrad(true)),
                    kind<SGD, torch::optim::SGD>("sgd", SGDOptions(0.05), SGDOptions(0.1).weight_decay(0.1)),
                    kind<SGD, torch::optim::SGD>("momentum", SGDOptions(0.05).momentum(0.9).nesterov(true),
                                                 SGDOptions(0.02).momentum(0.8).dampening(0.4).weight_decay(0.1))),
    [](const auto& info) { return info.param.name; });

at::Tensor with_gradient(const at::Tensor& value, const at::Tensor& gradient) {
  auto parameter = value.detach().set_requires_grad(true);
  parameter.mutable_grad() = gradient;
  return parameter;
}

// With gaps in its memory, on a device without kernels, and of another dtype.
TEST(FusedAdamW, LeavesToLibTorchWhatTheKernelsDoNotTake) {
  const auto parameters = [] {
    at::manual_seed(3);
    auto parameters = Parameters{with_gradient(at::randn({4}), at::randn({4})),
                                 with_gradient(at::randn({3, 4}).slice(1, 0, 2), at::randn({3, 2})),
                                 with_gradient(at::ones({2}, at::kMeta), at::ones({2}, at::kMeta)),
                                 with_gradient(at::randn({4}, at::kDouble), at::randn({4}, at::kDouble))};
    return parameters;
  };
  const auto ours = parameters();
  const auto theirs = parameters();
  const auto before = copies(ours);
  AdamW optimizer(ours, AdamWOptions(0.1));
  torch::optim::AdamW reference(theirs, AdamWOptions(0.1));
  const auto gradient = ours[0].grad();
  for (int step = 0; step < 3; ++step) {
    optimizer.step();
    reference.step();
  }
  EXPECT_TRUE(ours[0].grad().is_same(gradient));
  EXPECT_TRUE(at::equal(ours[1], theirs[1]));
  for (const size_t i : {0, 3}) EXPECT_TRUE(at::allclose(ours[i], theirs[i], 1e-5, 1e-6)) << i;
  for (const size_t i : {0, 1, 3}) EXPECT_FALSE(at::equal(ours[i], before[i])) << i;
  for (const auto& parameter : ours) {
    const auto& state = *optimizer.state().at(parameter.unsafeGetTensorImpl());
    EXPECT_EQ(static_cast<const torch::optim::AdamWParamState&>(state).step(), 3);
  }
}

// As two real numbers, of which each has averages of its own. Gradients and states may be lazily conjugated views.
TEST_P(FusedOptimizers, TakeAComplexNumberAsTwoRealOnes) {
  at::manual_seed(5);
  const auto values = Parameters{at::randn({3, 4}, at::kComplexFloat), at::randn({4, 2}, at::kComplexDouble).t(),
                                 at::randn({}, at::kComplexFloat)};
  Parameters complex, real;
  for (const auto& value : values) {
    complex.push_back(value.clone().set_requires_grad(true));
    real.push_back(at::view_as_real(value).clone().set_requires_grad(true));
  }
  const auto optimizer = GetParam().make(complex, true);
  const auto reference = GetParam().make(real, true);
  for (int step = 0; step < 6; ++step) {
    for (size_t i = 0; i < values.size(); ++i) {
      const auto gradient = at::randn(values[i].sizes(), values[i].options());
      complex[i].mutable_grad() = step % 2 == 1 ? gradient.conj().clone().conj() : gradient;
      real[i].mutable_grad() = at::view_as_real(gradient).clone();
    }
    optimizer->step();
    reference->step();
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_TRUE(at::allclose(at::view_as_real(complex[i].detach()), real[i], 1e-6, 1e-7)) << i << " step " << step;
    }
  }
}

TEST(FusedSGD, OfNegatedGradientsReadsThemNegated) {
  const auto parameter = with_gradient(at::zeros({3}), at::_neg_view(at::arange(1.F, 4.F)));
  ASSERT_TRUE(parameter.grad().is_neg());
  SGD({parameter}, SGDOptions(1)).step();
  EXPECT_TRUE(at::equal(parameter, at::arange(1.F, 4.F)));
}

TEST(FusedAdamW, SparseGradientChangesNothingMessage) {
  const auto dense = with_gradient(at::ones({3}), at::ones({3}));
  const auto sparse = with_gradient(at::ones({3}), at::ones({3}).to_sparse());
  AdamW optimizer({dense, sparse}, AdamWOptions(0.1));
  EXPECT_EQ(error_of([&] { optimizer.step(); }), "AdamW does not support sparse gradients");
  EXPECT_TRUE(at::equal(dense, at::ones({3})));
  EXPECT_TRUE(at::equal(dense.grad(), at::ones({3})));
  EXPECT_TRUE(sparse.grad().is_sparse());
}

// Longer than the kernels' vectors. Python's fused=True gives other numbers altogether.
TEST(FusedSGD, OfSixteenBitsIsThatOfFloat32Rounded) {
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    for (const double momentum : {0.0, 0.9}) {
      at::manual_seed(9);
      const auto parameter = with_gradient(at::randn({1031}).to(dtype), {});
      const auto reference = with_gradient(parameter.detach().to(at::kFloat), {});
      const auto options = SGDOptions(0.1).momentum(momentum).weight_decay(0.1);
      SGD ours({parameter}, options);
      torch::optim::SGD theirs({reference}, options);
      for (int step = 0; step < 5; ++step) {
        parameter.mutable_grad() = at::randn({1031}).to(dtype);
        reference.mutable_grad() = parameter.grad().to(at::kFloat);
        ours.step();
        theirs.step();
      }
      EXPECT_TRUE(at::allclose(parameter.to(at::kFloat), reference, dtype == at::kHalf ? 4e-3 : 3e-2, 1e-2));
    }
  }
}

TEST(FusedSGD, TakesSparseGradientsAsLibTorchs) {
  const auto dense = with_gradient(at::ones({3}), at::ones({3}));
  const auto sparse = with_gradient(at::ones({3}), at::tensor({0.F, 2.F, 0.F}).to_sparse());
  SGD({dense, sparse}, SGDOptions(0.1)).step();
  EXPECT_TRUE(at::allclose(dense, at::full({3}, 0.9)));
  EXPECT_TRUE(at::allclose(sparse, at::tensor({1.F, 0.8F, 1.F})));
}

TEST(FusedAdamW, ClosureRunsWithGradientsAndItsLossIsReturned) {
  const auto parameter = at::ones({2}).set_requires_grad(true);
  AdamW optimizer({parameter}, AdamWOptions(0.1).weight_decay(0));
  const auto loss = optimizer.step([&] {
    auto sum = (parameter * at::tensor({1.F, -1.F})).sum() + 5;
    sum.backward();
    return sum;
  });
  EXPECT_EQ(loss.item<float>(), 5);
  EXPECT_TRUE(at::allclose(parameter, at::tensor({0.9F, 1.1F})));
  EXPECT_FALSE(optimizer.step().defined());
}

TEST(FusedAdamW, FollowsASchedule) {
  const auto parameter = with_gradient(at::zeros({1}), at::ones({1}));
  AdamW optimizer({parameter}, AdamWOptions(0.5).weight_decay(0));
  torch::optim::StepLR schedule(optimizer, /*step_size=*/1, /*gamma=*/0.5);
  for (const double expected : {-0.5, -1.0, -1.25}) {
    optimizer.step();
    EXPECT_NEAR(parameter.item<double>(), expected, 1e-5);
    schedule.step();
  }
}

// A loaded state may be in another order of dimensions, or dtype: it becomes the parameter's, as Python's load_state_dict does.
TEST(FusedAdamW, AStateInAnotherLayoutOrDtypeCountsAlike) {
  const auto run = [](const std::function<at::Tensor(const at::Tensor&)>& change) {
    at::manual_seed(5);
    const auto parameter = with_gradient(at::randn({4, 3}), at::randn({4, 3}));
    AdamW optimizer({parameter}, AdamWOptions(0.1));
    optimizer.step();
    auto& state = static_cast<torch::optim::AdamWParamState&>(*optimizer.state().at(parameter.unsafeGetTensorImpl()));
    state.exp_avg(change(state.exp_avg()));
    state.exp_avg_sq(change(state.exp_avg_sq()));
    optimizer.step();
    return parameter;
  };
  const auto expected = run([](const at::Tensor& tensor) { return tensor; });
  EXPECT_TRUE(at::equal(run([](const at::Tensor& tensor) { return tensor.t().contiguous().t(); }), expected));
  EXPECT_TRUE(at::equal(run([](const at::Tensor& tensor) { return tensor.to(at::kDouble); }), expected));
}

TEST(FusedAdamW, OtherSizesMessage) {
  const auto parameter = with_gradient(at::ones({4}), at::ones({4}));
  AdamW optimizer({parameter}, AdamWOptions(0.1));
  optimizer.step();
  auto& state = static_cast<torch::optim::AdamWParamState&>(*optimizer.state().at(parameter.unsafeGetTensorImpl()));
  const auto before = parameter.detach().clone();
  parameter.mutable_grad() = at::ones({2});
  EXPECT_EQ(error_of([&] { optimizer.step(); }), "[cohort] The gradient of a parameter of sizes [4] has sizes [2]");
  parameter.mutable_grad() = at::ones({4});
  state.exp_avg_sq(at::ones({4, 1}));
  EXPECT_EQ(error_of([&] { optimizer.step(); }),
            "[cohort] The exp_avg_sq of a parameter of sizes [4] has sizes [4, 1]");
  EXPECT_TRUE(at::equal(parameter, before));
  EXPECT_EQ(state.step(), 1);
}

}  // namespace
}  // namespace cohort::optim
