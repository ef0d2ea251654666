// Autocast regions: what they set, restore and refuse. tests/e2e/parallel/precision_test.py compares training under them.
#include "cohort/parallel/precision/autocast.h"

#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <stdexcept>
#include <thread>

#include "cohort/parallel/activation/checkpoint.h"
#include "tests/support/require.h"

namespace cohort {
namespace {

using test::error_of;

at::ScalarType dtype_of_product() { return at::matmul(at::ones({2, 2}), at::ones({2, 2})).scalar_type(); }

TEST(Autocast, RunsProductsInBfloat16AndLossesInFloat32) {
  {
    const Autocast autocast(at::kCPU);
    EXPECT_EQ(dtype_of_product(), at::kBFloat16);
    const auto low = at::matmul(at::ones({2, 2}), at::ones({2, 2}));
    EXPECT_EQ(at::mse_loss(low, low).scalar_type(), at::kFloat);
  }
  EXPECT_EQ(dtype_of_product(), at::kFloat);
}

TEST(Autocast, RunsProductsInFloat16IfToldSo) {
  const Autocast autocast(at::kCPU, {.dtype = at::kHalf});
  EXPECT_EQ(dtype_of_product(), at::kHalf);
}

TEST(Autocast, RegionsNestAndTakeTheirDtypeFromAround) {
  const Autocast outer(at::kCPU, {.dtype = at::kHalf});
  {
    const Autocast inner(at::kCPU);
    EXPECT_EQ(dtype_of_product(), at::kHalf);
    const Autocast innermost(at::kCPU, {.dtype = at::kBFloat16});
    EXPECT_EQ(dtype_of_product(), at::kBFloat16);
  }
  {
    const Autocast off(at::kCPU, {.enabled = false});
    EXPECT_EQ(dtype_of_product(), at::kFloat);
    const Autocast on(at::kCPU);
    EXPECT_EQ(dtype_of_product(), at::kHalf);
  }
  EXPECT_EQ(dtype_of_product(), at::kHalf);
}

TEST(Autocast, IsTheThreadsOwn) {
  const Autocast autocast(at::kCPU);
  at::ScalarType elsewhere{};
  std::thread([&] { elsewhere = dtype_of_product(); }).join();
  EXPECT_EQ(elsewhere, at::kFloat);
}

// Whether a change of a parameter, which nothing tells autocast of, shows in the next product.
bool is_cast_again(const at::Tensor& parameter) {
  const auto product = [&] { return at::matmul(at::ones({2, 2}), parameter).detach(); };
  const auto before = product();
  {
    const at::NoGradGuard no_grad;
    parameter.add_(1);
  }
  return !product().equal(before);
}

TEST(Autocast, CastsAParameterOnceUntilTheOutermostRegionEnds) {
  const auto parameter = torch::ones({2, 2}, at::requires_grad());
  {
    const Autocast outer(at::kCPU);
    at::Tensor before;
    {
      const Autocast inner(at::kCPU);
      EXPECT_FALSE(is_cast_again(parameter));
      before = at::matmul(at::ones({2, 2}), parameter);
    }
    EXPECT_TRUE(at::matmul(at::ones({2, 2}), parameter).equal(before)) << "the inner region let the casts go";
  }
  const Autocast next(at::kCPU);
  EXPECT_EQ(at::matmul(at::ones({2, 2}), parameter).sum().item<float>(), 16)
      << "the casts of an ended region are there";
}

TEST(Autocast, WithoutTheCacheParametersAreCastAgain) {
  const auto parameter = torch::ones({2, 2}, at::requires_grad());
  const Autocast outer(at::kCPU, {.cache_enabled = false});
  EXPECT_TRUE(is_cast_again(parameter));
  {
    const Autocast inner(at::kCPU);
    EXPECT_TRUE(is_cast_again(parameter)) << "the inner region's cache is that around it";
    const Autocast innermost(at::kCPU, {.cache_enabled = true});
    EXPECT_FALSE(is_cast_again(parameter));
  }
  EXPECT_FALSE(at::autocast::is_autocast_cache_enabled());
}

TEST(Autocast, AnExceptionEndsItsRegions) {
  const auto parameter = torch::ones({2, 2}, at::requires_grad());
  const auto fails = [&] {
    const Autocast outer(at::kCPU, {.dtype = at::kHalf, .cache_enabled = false});
    const Autocast inner(at::kCPU, {.cache_enabled = true});
    is_cast_again(parameter);
    throw std::runtime_error("in a region");
  };
  EXPECT_THROW(fails(), std::runtime_error);
  EXPECT_EQ(dtype_of_product(), at::kFloat);
  EXPECT_TRUE(at::autocast::is_autocast_cache_enabled());
  EXPECT_EQ(at::autocast::get_autocast_dtype(at::kCPU), at::kBFloat16);
  const Autocast next(at::kCPU);
  EXPECT_EQ(at::matmul(at::ones({2, 2}), parameter).sum().item<float>(), 16);
}

TEST(Autocast, AnotherDtypeDisablesItMessage) {
  testing::internal::CaptureStderr();
  {
    const Autocast autocast(at::kCPU, {.dtype = at::kDouble});
    EXPECT_EQ(dtype_of_product(), at::kFloat);
  }
  const Autocast off(at::kCPU, {.dtype = at::kDouble, .enabled = false});
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "[cohort] warning: In CPU autocast, but the target dtype is not supported. Disabling autocast.\n"
            "CPU Autocast only supports dtypes of torch.bfloat16, torch.float16 currently.\n");
}

TEST(Autocast, OfADeviceThatIsNotThereMessage) {
  testing::internal::CaptureStderr();
  const Autocast autocast(at::kXPU);
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kXPU));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "[cohort] warning: XPU is not available. Disabling autocast.\n");
}

TEST(Autocast, OfATypeWithoutAutocastMessage) {
  EXPECT_EQ(error_of([] { const Autocast autocast(at::kMeta); }),
            "User specified an unsupported autocast device_type 'meta'");
  EXPECT_EQ(dtype_of_product(), at::kFloat);
}

TEST(Autocast, RecomputationHasTheStateOfItsForward) {
  const auto weight = torch::ones({2, 2}, at::requires_grad());
  std::vector<at::ScalarType> dtypes;
  const auto function = [&](const at::Tensor& x) {
    const auto low = at::matmul(x, weight);
    const Autocast off(at::kCPU, {.enabled = false});
    const auto full = at::matmul(x.to(at::kFloat), low.to(at::kFloat));
    dtypes.insert(dtypes.end(), {low.scalar_type(), full.scalar_type()});
    return full.exp();
  };
  for (const bool use_reentrant : {false, true}) {
    dtypes.clear();
    const auto x = torch::ones({2, 2}, at::requires_grad());
    at::Tensor y;
    {
      const Autocast autocast(at::kCPU, {.dtype = at::kHalf});
      y = activation::checkpoint({.use_reentrant = use_reentrant}, function, x);
    }
    const Autocast during_backward(at::kCPU, {.dtype = at::kBFloat16});
    y.sum().backward();
    EXPECT_EQ(dtypes, (std::vector{at::kHalf, at::kFloat, at::kHalf, at::kFloat}));
    EXPECT_EQ(dtype_of_product(), at::kBFloat16);
  }
}

TEST(Autocast, RecomputationOfADisabledRegionIsDisabled) {
  std::vector<at::ScalarType> dtypes;
  const auto function = [&](const at::Tensor& x) {
    const auto y = at::matmul(x, x);
    dtypes.push_back(y.scalar_type());
    return y.exp();
  };
  const auto x = torch::ones({2, 2}, at::requires_grad());
  const Autocast outer(at::kCPU);
  at::Tensor y;
  {
    const Autocast off(at::kCPU, {.enabled = false});
    y = activation::checkpoint(function, x);
  }
  y.sum().backward();
  EXPECT_EQ(dtypes, (std::vector{at::kFloat, at::kFloat}));
}

}  // namespace
}  // namespace cohort
