#include "cohort/comm/backend/accelerator.h"

#include <ATen/DeviceAccelerator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <cstdint>

namespace cohort::comm {

std::optional<Accelerator> accelerator() {
  const auto type = at::getAccelerator();
  if (!type || !c10::impl::hasDeviceGuardImpl(*type)) return std::nullopt;
  const int num_devices = static_cast<uint8_t>(c10::impl::getDeviceGuardImpl(*type)->deviceCount());
  if (num_devices == 0) return std::nullopt;
  return Accelerator{*type, num_devices};
}

}  // namespace cohort::comm
