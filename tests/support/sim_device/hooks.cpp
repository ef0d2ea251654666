#include "tests/support/sim_device/hooks.h"

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>

#include <memory>

#include "tests/support/sim_device/generator.h"
#include "tests/support/sim_device/memory.h"
#include "tests/support/sim_device/pinned_memory.h"
#include "tests/support/sim_device/sim_device.h"
#include "tests/support/sim_device/streams.h"

namespace cohort::sim {
namespace {

template <class Interface>
class Hooks : public Interface {
 public:
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return static_cast<c10::DeviceIndex>(num_devices()); }
  c10::DeviceIndex getCurrentDevice() const override { return sim::current_device(); }
  void setCurrentDevice(c10::DeviceIndex index) const override { exchangeDevice(index); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    return c10::impl::getDeviceGuardImpl(type())->exchangeDevice(device(index)).index();
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override { return exchangeDevice(index); }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override { return default_generator(index); }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override { return new_generator(index); }
  at::Device getDeviceFromPtr(void* pointer) const override { return device(device_of(pointer)); }
  bool isPinnedPtr(const void* pointer) const override { return is_pinned(pointer); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }
};

class CudaHooks final : public Hooks<at::CUDAHooksInterface> {
 public:
  bool hasCUDA() const override { return true; }
  c10::DeviceIndex current_device() const override { return sim::current_device(); }
  int getNumGPUs() const override { return num_devices(); }
};

class PrivateUse1Hooks final : public Hooks<at::PrivateUse1HooksInterface> {
 public:
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    resize_storage(storage, bytes);
  }
};

}  // namespace

void register_hooks() {
  if (type() == c10::DeviceType::PrivateUse1) {
    at::RegisterPrivateUse1HooksInterface(new PrivateUse1Hooks);
    return;
  }
  at::CUDAHooksRegistry()->Register("CUDAHooks", [](at::CUDAHooksArgs) { return std::make_unique<CudaHooks>(); });
  TORCH_CHECK(at::globalContext().hasCUDA(),
              "sim::install() came too late: LibTorch has already found that there is no CUDA");
}

}  // namespace cohort::sim
