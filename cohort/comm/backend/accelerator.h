/// The accelerator of this process, of any type. The rest of the library only asks whether a tensor is on the CPU.
#pragma once

#include <c10/core/Device.h>

#include <optional>

#include "cohort/export.h"

namespace cohort::comm {

struct Accelerator {
  c10::DeviceType type;
  int num_devices;
};

/// Absent if LibTorch knows no accelerator or sees no device of it. Follows torch.accelerator.
COHORT_TEST_API std::optional<Accelerator> accelerator();

/// Returns the accelerator's type.
inline std::optional<c10::DeviceType> accelerator_type() {
  const auto found = accelerator();
  return found ? std::optional(found->type) : std::nullopt;
}

}  // namespace cohort::comm
