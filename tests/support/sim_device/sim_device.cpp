#include "tests/support/sim_device/sim_device.h"

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "cohort/comm/backend/accelerator.h"
#include "tests/support/sim_device/autocast.h"
#include "tests/support/sim_device/fallback.h"
#include "tests/support/sim_device/guard.h"
#include "tests/support/sim_device/hooks.h"
#include "tests/support/sim_device/memory.h"
#include "tests/support/sim_device/operators.h"
#include "tests/support/sim_device/streams.h"

namespace cohort::sim {
namespace {

// Written once, by install().
int device_count = 0;
c10::DeviceType device_type = c10::DeviceType::PrivateUse1;
bool devices_are_real = false;

void use_real_devices(int max_devices) {
  const auto accelerator = comm::accelerator();
  TORCH_CHECK(accelerator, "COHORT_TEST_SIM=real needs an accelerator, and LibTorch sees none");
  devices_are_real = true;
  device_type = accelerator->type;
  device_count = std::min(accelerator->num_devices, max_devices);
}

}  // namespace

void install(Place place, int num_devices) {
  TORCH_CHECK(!is_installed(), "sim::install() was called twice");
  TORCH_CHECK(num_devices > 0 && num_devices <= kMaxDevices, "sim::install() takes 1 to ", kMaxDevices,
              " devices, got ", num_devices);
  TORCH_CHECK(place != Place::kCuda || !c10::impl::hasDeviceGuardImpl(c10::DeviceType::CUDA),
              "simulated devices can take CUDA's place only in a LibTorch without CUDA");
  if (place == Place::kReal) return use_real_devices(num_devices);
  device_type = place == Place::kCuda ? c10::DeviceType::CUDA : c10::DeviceType::PrivateUse1;
  device_count = num_devices;
  reserve_memory();
  c10::SetAllocator(device_type, device_allocator());
  register_guard();
  register_operators();
  register_fallback();
  if (place == Place::kPrivateUse1) {
    register_autocast();
    c10::register_privateuse1_backend("sim");
  }
  register_hooks();
  // Before LibTorch's own objects are destroyed, which kernels need.
  std::atexit([] {
    try {
      for (auto* queue : all_queues()) queue->wait_for_all();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "simulated device: work in a stream has failed: %s\n", error.what());
      std::_Exit(1);
    }
  });
}

bool is_installed() { return device_count > 0; }

bool is_real() { return devices_are_real; }

c10::DeviceType type() { return device_type; }

c10::Device device(int index) {
  return {device_type, static_cast<c10::DeviceIndex>(is_real() ? index % device_count : index)};
}

int num_devices() { return device_count; }

void synchronize() {
  for (int index = 0; is_real() && index < device_count; ++index) {
    c10::impl::VirtualGuardImpl(device_type).synchronizeDevice(device(index).index());
  }
  for (auto* queue : all_queues()) queue->wait_for_all();
}

}  // namespace cohort::sim
