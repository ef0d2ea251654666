#include "cohort/comm/group/device.h"

#include <c10/core/impl/FakeGuardImpl.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/support/rank_processes.h"
#include "tests/support/require.h"

namespace cohort {
namespace {

using c10::DeviceType;
using test::error_of;
using test::run_workers;
using FakeGpus = c10::impl::FakeGuardImpl<DeviceType::CUDA>;

TEST(Device, IsTheCpuWithoutGpus) {
  const bool has_cuda = c10::impl::hasDeviceGuardImpl(DeviceType::CUDA);
  if (has_cuda && c10::impl::getDeviceGuardImpl(DeviceType::CUDA)->deviceCount() > 0)
    GTEST_SKIP() << "a GPU is present";
  EXPECT_EQ(current_device(), c10::Device(DeviceType::CPU));
  set_device(3);
  set_device(c10::Device("cpu"));
  EXPECT_EQ(current_device(), c10::Device(DeviceType::CPU));
  EXPECT_EQ(error_of([] { set_device(-1); }), "Invalid device index -1: it must not be negative");
  EXPECT_EQ(error_of([] { set_device(c10::Device("cuda:1")); }),
            "Invalid device cuda:1: this process sees no GPU\n  hint: check nvidia-smi, CUDA_VISIBLE_DEVICES and that "
            "LibTorch is a CUDA build");
  EXPECT_EQ(error_of([] { set_device(c10::Device("mps")); }), "Invalid device mps: it must be cpu or cuda");
}

// LibTorch's own stand-in for eight GPUs.
COHORT_WORKER(eight_fake_gpus) {
  const c10::impl::DeviceGuardImplRegistrar registrar(DeviceType::CUDA, new FakeGpus);
  const auto gpu = [](int index) { return c10::Device(DeviceType::CUDA, static_cast<c10::DeviceIndex>(index)); };
  const int count = c10::impl::kFakeGuardImplMaxDevices;
  FakeGpus::setDeviceIndex(0);
  REQUIRE(current_device() == gpu(11 % count));
  REQUIRE(FakeGpus::getDeviceIndex() == 11 % count);
  REQUIRE_EQUAL(
      error_of([&] { set_device(count); }),
      "Invalid device index 8: this process sees 8 GPUs, numbered from 0\n  hint: check CUDA_VISIBLE_DEVICES");
  set_device(gpu(5));
  REQUIRE(current_device() == gpu(5));
  set_device(c10::Device("cuda"));
  REQUIRE(current_device() == gpu(5));
  set_device(0);
  REQUIRE(current_device() == gpu(0));
  std::thread([&] {
    FakeGpus::setDeviceIndex(0);
    set_device(6);
  }).join();
  REQUIRE(current_device() == gpu(0));
  std::thread([&] {
    FakeGpus::setDeviceIndex(0);
    REQUIRE(current_device() == gpu(6));
  }).join();
}

TEST(Device, IsChosenByThreadOrByLocalRank) {
  run_workers("eight_fake_gpus", {.world_size = 1, .environment = {{"LOCAL_RANK", "11"}}}).expect_success();
}

}  // namespace
}  // namespace cohort
