/// Random numbers of the simulated devices: a seed and a counter, as on CUDA, so that what a kernel draws depends on when it was
/// queued and not on when it runs. The numbers are not CUDA's.
#pragma once

#include <ATen/core/Generator.h>

namespace cohort::sim {

/// The device's own; a negative index means the current device.
const at::Generator& default_generator(c10::DeviceIndex device);
at::Generator new_generator(c10::DeviceIndex device);
/// A CPU generator for one kernel, seeded from `given` or, where that is undefined, from the device's own.
/// Throws c10::Error for a generator of another device type.
at::Generator generator_of_kernel(const at::Generator& given, c10::DeviceIndex device);

}  // namespace cohort::sim
