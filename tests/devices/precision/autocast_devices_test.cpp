// Autocast regions of a device: float16 unless told otherwise, and nothing of the CPU's.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>

#include "cohort/parallel/activation/checkpoint.h"
#include "cohort/parallel/precision/autocast.h"
#include "tests/support/sim_device/device_test.h"
#include "tests/support/sim_device/sim_device.h"

namespace cohort::sim {
namespace {

using AutocastDevices = DeviceTest;

at::ScalarType dtype_of_product(const c10::Device& on) {
  return at::matmul(at::ones({2, 2}, on), at::ones({2, 2}, on)).scalar_type();
}

TEST_F(AutocastDevices, RunsProductsInFloat16) {
  {
    const Autocast autocast(type());
    EXPECT_EQ(dtype_of_product(device(0)), at::kHalf);
    EXPECT_EQ(dtype_of_product(at::kCPU), at::kFloat);
    const Autocast inner(type(), {.dtype = at::kBFloat16});
    EXPECT_EQ(dtype_of_product(device(0)), at::kBFloat16);
    const Autocast of_the_cpu(at::kCPU);
    EXPECT_EQ(dtype_of_product(at::kCPU), at::kBFloat16);
    const Autocast off(type(), {.enabled = false});
    EXPECT_EQ(dtype_of_product(device(0)), at::kFloat);
    EXPECT_EQ(dtype_of_product(at::kCPU), at::kBFloat16);
  }
  EXPECT_EQ(dtype_of_product(device(0)), at::kFloat);
}

// The device's backward runs in a thread of autograd's, which has no region.
TEST_F(AutocastDevices, RecomputationHasTheStateOfItsForward) {
  std::vector<at::ScalarType> dtypes;
  const auto x = at::ones({2, 2}, device(0)).requires_grad_();
  at::Tensor y;
  {
    const Autocast autocast(type());
    y = activation::checkpoint(
        [&](const at::Tensor& input) {
          const auto product = at::matmul(input, input);
          dtypes.push_back(product.scalar_type());
          return product.exp();
        },
        x);
  }
  y.sum().backward();
  EXPECT_EQ(dtypes, (std::vector{at::kHalf, at::kHalf}));
}

}  // namespace
}  // namespace cohort::sim
