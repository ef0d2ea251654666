#include "cohort/elastic/plan/host_devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "cohort/base/file/open_file.h"
#include "cohort/base/machine/cpu.h"
#include "cohort/base/system/env.h"
#include "cohort/base/text/text.h"

namespace cohort::elastic {

using base::Error;
using base::Result;

namespace {

constexpr long long kMostRanks = 1 << 20;

/// CUDA stops reading the list at the first entry that is not a device, such as -1.
int count_visible(const std::string& list, int num_gpus) {
  int count = 0;
  for (const std::string& part : base::split(list, ',')) {
    const std::string device = base::trim(part);
    const auto index = base::parse_int(device);
    if (device.empty() || (index && (*index < 0 || *index >= num_gpus))) break;
    ++count;
  }
  return count;
}

}  // namespace

Result<void> check_gpus(const std::string& list) {
  if (list.empty()) return {};
  std::set<std::string> seen;
  for (const std::string& part : base::split(list, ',')) {
    const std::string gpu = base::trim(part);
    const auto index = base::parse_int(gpu);
    const bool is_name = gpu.starts_with("GPU-") || gpu.starts_with("MIG-");
    if (!is_name && (!index || *index < 0)) {
      return Error(fmt::format("--gpus={}: \"{}\" is neither a GPU's number nor its name", list, gpu))
          .with_hint("give numbers, as in --gpus=0,2, or names as nvidia-smi -L shows them");
    }
    if (!seen.insert(index ? std::to_string(*index) : gpu).second) {
      return Error(fmt::format("--gpus={} has GPU {} twice", list, gpu));
    }
  }
  return {};
}

HostDevices find_host_devices() {
  return {base::available_cores(), count_gpus("/dev", base::get_env("CUDA_VISIBLE_DEVICES"))};
}

int count_gpus(const std::string& device_folder, const std::optional<std::string>& visible_devices) {
  constexpr std::string_view kPrefix = "nvidia";
  int count = 0;
  const auto names = base::names_in_folder(device_folder);
  for (const std::string& name : names ? *names : std::vector<std::string>()) {
    if (name.starts_with(kPrefix) && base::parse_int(std::string_view(name).substr(kPrefix.size()))) ++count;
  }
  return visible_devices ? count_visible(*visible_devices, count) : count;
}

Result<int> parse_local_world_size(const std::string& text, const HostDevices& devices) {
  if (text == "cpu") return devices.num_cores;
  if (text == "auto") return devices.num_gpus > 0 ? devices.num_gpus : devices.num_cores;
  if (text == "gpu") {
    if (devices.num_gpus > 0) return devices.num_gpus;
    return Error("--nproc-per-node=gpu: Cuda is not available.")
        .with_hint("give a number, cpu or auto: this host has no /dev/nvidia0");
  }
  if (text == "xpu") {
    return Error(
               "--nproc-per-node=xpu: this launcher can only count CPUs and CUDA GPUs, because it does not link "
               "LibTorch")
        .with_hint("give their number, as in --nproc-per-node=4");
  }
  const auto count = base::parse_int(text);
  if (!count) {
    return Error(fmt::format("Unsupported nproc_per_node value: {}{}", text,
                             base::did_you_mean(text, {"auto", "cpu", "gpu"})))
        .with_hint("give a number, auto, cpu or gpu");
  }
  if (*count < 1 || *count > kMostRanks) {
    return Error(fmt::format("--nproc-per-node={} must be from 1 to {}", text, kMostRanks));
  }
  return static_cast<int>(*count);
}

}  // namespace cohort::elastic
