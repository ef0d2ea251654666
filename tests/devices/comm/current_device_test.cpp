// set_device and current_device on eight devices, or as many as are real.
#include <ATen/DeviceAccelerator.h>
#include <gtest/gtest.h>

#include <thread>

#include "cohort/comm/backend/accelerator.h"
#include "cohort/comm/group/device.h"
#include "tests/support/rank_processes.h"
#include "tests/support/require.h"
#include "tests/support/sim_device/device_test.h"

namespace cohort::sim {
namespace {

using CurrentDevice = DeviceTest;
using test::error_of;

void run_in_thread(const std::function<void()>& fn) { std::thread(fn).join(); }

COHORT_WORKER(chooses_devices) {
  install_requested_devices();
  const std::string name = c10::DeviceTypeName(type(), /*lower_case=*/true);
  const int count = comm::accelerator()->num_devices;
  REQUIRE(cohort::current_device() == device(11 % count));
  REQUIRE(at::accelerator::getDeviceIndex() == 11 % count);
  set_device(device(5));
  REQUIRE(cohort::current_device() == device(5));
  set_device(c10::Device(name));
  REQUIRE(cohort::current_device() == device(5));
  set_device(0);
  REQUIRE(cohort::current_device() == device(0));
  run_in_thread([] { set_device(device(6)); });
  REQUIRE(cohort::current_device() == device(0));
  run_in_thread([] { REQUIRE(cohort::current_device() == device(6)); });
  REQUIRE_EQUAL(error_of([&] { set_device(count); }),
                c10::str("[cohort] Invalid device index ", count, ": this process sees ", count, " ", name,
                         count == 1 ? " device" : " devices",
                         ", numbered from 0\n  hint: with NVIDIA GPUs check CUDA_VISIBLE_DEVICES"));
  REQUIRE_EQUAL(error_of([] { set_device(c10::Device("mps")); }),
                "[cohort] Invalid device mps: it must be cpu or " + name + ", the accelerator of this process");
}

TEST_F(CurrentDevice, IsChosenByThreadOrByLocalRank) {
  test::run_workers("chooses_devices", {.world_size = 1, .environment = {{"LOCAL_RANK", "11"}}}).expect_success();
}

}  // namespace
}  // namespace cohort::sim
