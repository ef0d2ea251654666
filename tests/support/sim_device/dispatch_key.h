/// The dispatcher's keys of the simulated devices' tensors. Private to this folder.
#pragma once

#include <c10/core/DispatchKeySet.h>

#include "tests/support/sim_device/sim_device.h"

namespace cohort::sim {

inline c10::DispatchKey dispatch_key() {
  return type() == c10::DeviceType::CUDA ? c10::DispatchKey::CUDA : c10::DispatchKey::PrivateUse1;
}

/// Of a tensor. With the CPU's bit Module::to can put a tensor of a PrivateUse1 device into a parameter of the CPU: set_data
/// wants both of one type or of types in a list that lacks PrivateUse1 (pytorch/pytorch#196975). Calls go to the highest bit,
/// which is the device's.
inline c10::DispatchKeySet tensor_keys() {
  return c10::DispatchKeySet(dispatch_key()) | c10::DispatchKeySet(c10::DispatchKey::CPU);
}

}  // namespace cohort::sim
