// Against Python's numbers: tests/e2e/parallel/optim_test.py.
#include "cohort/parallel/optim/clip_grad.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>
#include <ranges>

#include "tests/support/require.h"

namespace cohort::nn::utils {
namespace {

using test::error_of;

at::Tensor with_grad(const at::Tensor& grad) {
  auto parameter = at::zeros_like(grad).set_requires_grad(true);
  parameter.mutable_grad() = grad.clone();
  return parameter;
}

TEST(ClipGrad, ScalesAllGradientsByTheirCommonNorm) {
  const std::vector<at::Tensor> parameters{with_grad(at::tensor({3.F, 0.F})), at::ones({2}).set_requires_grad(true),
                                           with_grad(at::tensor({4.F}))};
  const auto norm = clip_grad_norm_(parameters, 1.0);
  EXPECT_EQ(norm.item<float>(), 5.F);
  EXPECT_EQ(norm.dim(), 0);
  EXPECT_FALSE(norm.requires_grad());
  EXPECT_TRUE(at::allclose(parameters[0].grad(), at::tensor({0.6F, 0.F})));
  EXPECT_TRUE(at::allclose(parameters[2].grad(), at::tensor({0.8F})));
  EXPECT_FALSE(parameters[1].grad().defined());
}

TEST(ClipGrad, LeavesGradientsWithinTheNormAsTheyAre) {
  const auto parameter = with_grad(at::tensor({0.3F, -0.4F}));
  clip_grad_norm_(parameter, 0.51);
  EXPECT_TRUE(at::equal(parameter.grad(), at::tensor({0.3F, -0.4F})));
}

TEST(ClipGrad, TakesATensorAListOrAnyRange) {
  const auto one = with_grad(at::tensor({3.F}));
  const auto two = with_grad(at::tensor({4.F}));
  EXPECT_EQ(get_total_norm(one.grad()).item<float>(), 3.F);
  EXPECT_EQ(get_total_norm({one.grad(), two.grad()}).item<float>(), 5.F);
  const std::vector<at::Tensor> all{one, two};
  const auto second = all | std::views::drop(1);
  EXPECT_EQ(clip_grad_norm_(second, 2.0).item<float>(), 4.F);
  EXPECT_TRUE(at::allclose(two.grad(), at::tensor({2.F})));
  EXPECT_EQ(one.grad().item<float>(), 3.F);
}

// LibTorch's lists refuse them.
TEST(ClipGrad, OfLazilyConjugatedAndNegatedGradients) {
  const auto values = at::complex(at::tensor({3.F, 0.F}), at::tensor({0.F, -4.F}));
  const auto conjugated = at::zeros_like(values).set_requires_grad(true);
  conjugated.mutable_grad() = values.clone().conj();
  const auto negated = at::zeros({1}).set_requires_grad(true);
  negated.mutable_grad() = at::_neg_view(at::tensor({12.F}));
  const auto norm = clip_grad_norm_({conjugated, negated}, 1.3);
  EXPECT_EQ(norm.item<float>(), 13.F);
  EXPECT_TRUE(at::allclose(conjugated.grad().resolve_conj(), values.conj().resolve_conj() / 10));
  EXPECT_TRUE(at::allclose(negated.grad(), at::tensor({-1.2F})));
  clip_grad_value_(negated, 1.0);
  EXPECT_EQ(negated.grad().item<float>(), -1.F);
}

TEST(ClipGrad, OfNothingIsZero) {
  const auto norm = clip_grad_norm_(at::ones({2}).set_requires_grad(true), 1.0);
  EXPECT_EQ(norm.item<float>(), 0.F);
  EXPECT_EQ(norm.scalar_type(), at::kFloat);
  clip_grad_value_(std::vector<at::Tensor>(), 1.0);
}

TEST(ClipGrad, ClipsEveryElement) {
  const auto parameter = with_grad(at::tensor({-3.F, 0.5F, 7.F}));
  const auto wide = with_grad(at::tensor({-9., 9.}));
  clip_grad_value_({parameter, wide}, 1.0);
  EXPECT_TRUE(at::equal(parameter.grad(), at::tensor({-1.F, 0.5F, 1.F})));
  EXPECT_TRUE(at::equal(wide.grad(), at::tensor({-1., 1.})));
}

TEST(ClipGrad, NonFiniteNormMessage) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto parameter = with_grad(at::tensor({1.F, std::numeric_limits<float>::quiet_NaN()}));
  const auto text = [&](double norm_type) {
    return error_of([&] { clip_grad_norm_(parameter, 1.0, norm_type, /*error_if_nonfinite=*/true); });
  };
  const std::string rest =
      " for gradients from `parameters` is non-finite, so it cannot be clipped. To disable this error and scale the "
      "gradients by the non-finite norm anyway, set `error_if_nonfinite=false`";
  EXPECT_EQ(text(2), "The total norm of order 2.0" + rest);
  EXPECT_EQ(text(kInfinity), "The total norm of order inf" + rest);
  EXPECT_EQ(parameter.grad()[0].item<float>(), 1.F);
  EXPECT_TRUE(clip_grad_norm_(parameter, 1.0).isnan().item<bool>());
}

TEST(ClipGrad, ForeachOnADeviceWithoutItMessage) {
  const auto parameter = with_grad(at::ones({2}, at::kMeta));
  EXPECT_EQ(error_of([&] { clip_grad_norm_(parameter, 1.0, 2.0, false, /*foreach=*/true); }),
            "foreach=true was passed, but can't use the foreach API on meta tensors");
  EXPECT_EQ(error_of([&] { clip_grad_value_(parameter, 1.0, /*foreach=*/true); }),
            "foreach=true was passed, but can't use the foreach API on meta tensors");
  EXPECT_TRUE(clip_grad_norm_(parameter, 1.0).is_meta());
}

}  // namespace
}  // namespace cohort::nn::utils
