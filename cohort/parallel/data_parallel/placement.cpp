#include "cohort/parallel/data_parallel/placement.h"

#include <ATen/DeviceAccelerator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>

#include "cohort/base/log/log.h"

namespace cohort::nn::parallel {
namespace {

constexpr double kBalance = 0.75;

c10::Device with_index(const c10::Device& device) {
  if (device.is_cpu()) return c10::kCPU;
  return device.has_index() ? device : c10::impl::VirtualGuardImpl(device.type()).getDevice();
}

// Returns an empty list if the accelerator cannot tell.
std::vector<size_t> total_memory_of(const Devices& devices) {
  std::vector<size_t> total;
  try {
    for (const auto& device : devices) {
      total.push_back(at::getDeviceAllocator(device.type())->getMemoryInfo(device.index()).second);
    }
  } catch (const c10::Error&) {
    return {};
  }
  return total;
}

}  // namespace

Devices all_devices() {
  const auto type = at::getAccelerator();
  if (!type) return {};
  Devices devices;
  const auto count = c10::impl::VirtualGuardImpl(*type).deviceCount();
  for (c10::DeviceIndex index = 0; index < count; ++index) devices.emplace_back(*type, index);
  return devices;
}

std::optional<std::string> imbalance(const Devices& devices, const std::vector<size_t>& total_memory) {
  if (total_memory.empty()) return std::nullopt;
  const auto [least, most] = std::minmax_element(total_memory.begin(), total_memory.end());
  if (static_cast<double>(*least) >= kBalance * static_cast<double>(*most)) return std::nullopt;
  return fmt::format(
      "There is an imbalance between your devices. You may want to exclude device {} which has less than 75% of the "
      "memory of device {}. You can do so by setting the device_ids argument to DataParallel.",
      devices[least - total_memory.begin()].str(), devices[most - total_memory.begin()].str());
}

Placement place(const Devices& device_ids, std::optional<c10::Device> output_device, int64_t dim) {
  Placement placement;
  placement.dim = dim;
  for (const auto& device : device_ids.empty() ? all_devices() : device_ids) {
    placement.devices.push_back(with_index(device));
    const auto& first = placement.devices.front();
    TORCH_CHECK_VALUE(device.type() == first.type(), "[cohort] DataParallel needs devices of one type, got ", first,
                      " and ", device);
  }
  if (placement.devices.empty()) return placement;
  placement.output_device = output_device ? with_index(*output_device) : placement.devices.front();
  if (!placement.devices.front().is_cpu()) {
    if (const auto text = imbalance(placement.devices, total_memory_of(placement.devices))) base::warn_once(*text);
  }
  return placement;
}

void check_module_device(const torch::nn::Module& module, const c10::Device& device) {
  const auto check = [&](const std::vector<at::Tensor>& tensors) {
    for (const auto& tensor : tensors) {
      TORCH_CHECK(tensor.device() == device, "module must have its parameters and buffers on device ", device,
                  " (device_ids[0]) but found one of them on device: ", tensor.device());
    }
  };
  check(module.parameters());
  check(module.buffers());
}

}  // namespace cohort::nn::parallel
