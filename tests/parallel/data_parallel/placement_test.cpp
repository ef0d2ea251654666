#include "cohort/parallel/data_parallel/placement.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include "tests/support/require.h"

namespace cohort::nn::parallel {
namespace {

using test::error_of;

TEST(Placement, NamedDevicesAndTheFirstForTheOutput) {
  const auto placement = place({c10::Device("cpu:0"), at::kCPU}, std::nullopt, 1);
  EXPECT_EQ(placement.devices, (Devices{at::kCPU, at::kCPU}));
  EXPECT_EQ(placement.output_device, c10::Device(at::kCPU));
  EXPECT_EQ(placement.dim, 1);
}

TEST(Placement, WithoutDevicesAllOfTheAccelerator) { EXPECT_EQ(place({}, std::nullopt, 0).devices, all_devices()); }

TEST(Placement, DevicesOfTwoTypesMessage) {
  EXPECT_EQ(error_of([] {
              place({at::kCPU, c10::Device("meta:0")}, std::nullopt, 0);
            }),
            "[cohort] DataParallel needs devices of one type, got cpu and meta:0");
}

TEST(Placement, ImbalanceMessage) {
  const Devices devices{c10::Device("cuda:0"), c10::Device("cuda:1"), c10::Device("cuda:2")};
  EXPECT_EQ(
      imbalance(devices, {80, 40, 60}),
      "There is an imbalance between your devices. You may want to exclude device cuda:1 which has less than 75% of "
      "the memory of device cuda:0. You can do so by setting the device_ids argument to DataParallel.");
  EXPECT_EQ(imbalance(devices, {80, 60, 70}), std::nullopt);
  EXPECT_EQ(imbalance(devices, {}), std::nullopt);
}

TEST(Placement, ModuleOnAnotherDeviceMessage) {
  struct Mixed : torch::nn::Module {};
  Mixed net;
  net.register_parameter("weight", at::ones({2}));
  check_module_device(net, at::kCPU);
  net.register_buffer("seen", at::ones({2}, at::kMeta));
  const std::string text =
      "module must have its parameters and buffers on device cpu (device_ids[0]) but found one of them on "
      "device: meta";
  EXPECT_EQ(error_of([&] { check_module_device(net, at::kCPU); }), text);
  Mixed other;
  other.register_parameter("weight", at::ones({2}, at::kMeta));
  EXPECT_EQ(error_of([&] { check_module_device(other, at::kCPU); }), text);
}

}  // namespace
}  // namespace cohort::nn::parallel
