/// Placement: on which devices DataParallel runs, where its results go, along which dimension batches are cut.
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

/// A device may be there several times; of CPUs there is only one, so that is how to ask for several replicas on it.
using Devices = std::vector<c10::Device>;

/// Every device of this machine's accelerator; empty where there is none.
COHORT_API Devices all_devices();

struct Placement {
  Devices devices;  ///< none: the module is called as it is
  c10::Device output_device = c10::kCPU;
  int64_t dim = 0;
};

/// `device_ids`: empty for all_devices(). An accelerator without an index is its current device.
/// Throws c10::ValueError for devices of different types. Warns if a device has less than 75 % of another one's memory.
COHORT_API Placement place(const Devices& device_ids, std::optional<c10::Device> output_device, int64_t dim);

/// Throws c10::Error, with PyTorch's text, unless every parameter and buffer is on `device`.
COHORT_API void check_module_device(const torch::nn::Module& module, const c10::Device& device);

/// PyTorch's warning about devices of which one has less than 75 % of another one's memory; nothing if all have more.
COHORT_API std::optional<std::string> imbalance(const Devices& devices, const std::vector<size_t>& total_memory);

}  // namespace cohort::nn::parallel
