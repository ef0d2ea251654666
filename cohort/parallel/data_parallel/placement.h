/// Placement: the devices on which DataParallel runs, the device of its results, and the dimension along which batches are split.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cohort/export.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace cohort::nn::parallel {

/// A device may be listed several times; since there is only one CPU, that is how to ask for several replicas on it.
using Devices = std::vector<c10::Device>;

/// Returns every device of this machine's accelerator; empty without an accelerator.
COHORT_API Devices all_devices();

struct Placement {
  Devices devices;  ///< if empty, the module is called as it is
  c10::Device output_device = c10::kCPU;
  int64_t dim = 0;
};

/// `device_ids`: if empty, all_devices(). An accelerator without an index means its current device. Throws c10::ValueError for
/// devices of different types. Warns if a device has less than 75 % of another one's memory.
COHORT_API Placement place(const Devices& device_ids, std::optional<c10::Device> output_device, int64_t dim);

/// Throws c10::Error, with PyTorch's text, unless every parameter and buffer is on `device`.
COHORT_API void check_module_device(const torch::nn::Module& module, const c10::Device& device);

/// Returns PyTorch's warning if one of the devices has less than 75 % of another one's memory; otherwise absent.
COHORT_API std::optional<std::string> imbalance(const Devices& devices, const std::vector<size_t>& total_memory);

}  // namespace cohort::nn::parallel
