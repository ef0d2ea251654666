#include "cohort/train/metrics/device_for_numbers.h"

#include <algorithm>

#include "cohort/comm/group/group_backend.h"

namespace cohort::train {

c10::Device device_for_numbers(const Group& group, c10::Device device) {
  const auto devices = comm::resolve(group)->getDeviceTypes();
  const bool serves_cpu =
      std::any_of(devices.begin(), devices.end(), [](const c10::Device& served) { return served.is_cpu(); });
  return devices.empty() || serves_cpu ? c10::Device(c10::kCPU) : device;
}

}  // namespace cohort::train
