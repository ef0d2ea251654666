#include "cohort/comm/registry/backend_config.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cctype>

#include "cohort/base/text.h"

namespace cohort::comm {
namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

std::string device_text(c10::DeviceType device) { return c10::DeviceTypeName(device, /*lower_case=*/true); }

std::string names(const std::vector<BackendCapability>& known) {
  std::vector<std::string> all;
  for (const auto& backend : known) all.push_back(backend.name);
  return base::join(all, ", ");
}

const BackendCapability& capability_in(const std::string& name, const std::vector<BackendCapability>& known) {
  const auto found = std::find_if(known.begin(), known.end(), [&](const auto& entry) { return entry.name == name; });
  TORCH_CHECK_VALUE(found != known.end(), "Unknown backend \"", name, "\" (known: ", names(known),
                    "; others can be added by register_backend)");
  return *found;
}

c10::DeviceType parse_device(const std::string& name, const std::string& text) {
  if (name == "cpu") return c10::DeviceType::CPU;
  if (name == "cuda") return c10::DeviceType::CUDA;
  TORCH_CHECK_VALUE(false, "Unknown device \"", name, "\" in the backend string \"", text, "\" (known: cpu, cuda)");
}

std::vector<DeviceBackend> parse_pairs(const std::string& text, const std::vector<BackendCapability>& known) {
  std::vector<DeviceBackend> config;
  for (const auto& pair : base::split(text, ',')) {
    const auto parts = base::split(pair, ':');
    TORCH_CHECK_VALUE(parts.size() == 2, "Invalid device:backend pairing: \"", pair, "\" in the backend string \"",
                      text,
                      "\"; the form is \"<device>:<backend>,<device>:<backend>\", such as \"cpu:gloo,cuda:nccl\"");
    const auto device = parse_device(parts[0], text);
    for (const auto& earlier : config) {
      TORCH_CHECK_VALUE(earlier.device != device, "Duplicate device type ", parts[0], " in the backend string \"", text,
                        "\"");
    }
    const auto& devices = capability_in(parts[1], known).devices;
    TORCH_CHECK_VALUE(std::find(devices.begin(), devices.end(), device) != devices.end(), "backend \"", parts[1],
                      "\" does not serve ", parts[0], " tensors (backend string \"", text, "\")");
    config.push_back({device, parts[1]});
  }
  return config;
}

}  // namespace

std::string default_backend_for(c10::DeviceType device) {
  if (device == c10::DeviceType::CPU) return "gloo";
  if (device == c10::DeviceType::CUDA) return "nccl";
  TORCH_CHECK_VALUE(false, "Default backend not registered for device : ", device_text(device));
}

std::vector<DeviceBackend> parse_backend(const std::string& text, bool has_cuda,
                                         const std::vector<BackendCapability>& known) {
  const auto name = lower(text);
  if (name.empty()) {
    const auto device = has_cuda ? c10::DeviceType::CUDA : c10::DeviceType::CPU;
    return {{device, default_backend_for(device)}};
  }
  if (name.find(':') != std::string::npos) return parse_pairs(name, known);
  std::vector<DeviceBackend> config;
  for (const auto device : capability_in(name, known).devices) config.push_back({device, name});
  return config;
}

std::string to_string(const std::vector<DeviceBackend>& config) {
  std::vector<std::string> pairs;
  for (const auto& [device, backend] : config) pairs.push_back(device_text(device).append(":").append(backend));
  return base::join(pairs, ",");
}

}  // namespace cohort::comm
