#include "cohort/comm/group/device.h"

#include <gtest/gtest.h>

#include "cohort/comm/backend/accelerator.h"
#include "tests/support/require.h"

namespace cohort {
namespace {

using c10::DeviceType;
using test::error_of;

TEST(Device, IsTheCpuWithoutAnAccelerator) {
  if (comm::accelerator()) GTEST_SKIP() << "an accelerator is present";
  EXPECT_EQ(current_device(), c10::Device(DeviceType::CPU));
  set_device(3);
  set_device(c10::Device("cpu"));
  EXPECT_EQ(current_device(), c10::Device(DeviceType::CPU));
  EXPECT_EQ(error_of([] { set_device(-1); }), "[cohort] Invalid device index -1: it must not be negative");
  EXPECT_EQ(
      error_of([] { set_device(c10::Device("cuda:1")); }),
      "[cohort] Invalid device cuda:1: this process sees no accelerator\n  hint: with NVIDIA GPUs check nvidia-smi, "
      "CUDA_VISIBLE_DEVICES and that LibTorch is a CUDA build");
}

}  // namespace
}  // namespace cohort
