#include "cohort/comm/registry/backend_config.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cctype>

#include "cohort/base/text/text.h"

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
  TORCH_CHECK_VALUE(found != known.end(), "[cohort] Unknown backend \"", name, "\" (known: ", names(known),
                    "; others can be added by register_backend)");
  return *found;
}

bool contains(const std::vector<c10::DeviceType>& devices, c10::DeviceType device) {
  return std::find(devices.begin(), devices.end(), device) != devices.end();
}

// Returns the devices that at least one backend serves.
std::vector<c10::DeviceType> known_devices(const std::vector<BackendCapability>& known) {
  std::vector<c10::DeviceType> devices;
  for (const auto& backend : known) {
    for (const auto device : backend.devices) {
      if (!contains(devices, device)) devices.push_back(device);
    }
  }
  return devices;
}

c10::DeviceType parse_device(const std::string& name, const std::string& text,
                             const std::vector<BackendCapability>& known) {
  std::vector<std::string> names;
  for (const auto device : known_devices(known)) {
    if (name == device_text(device)) return device;
    names.push_back(device_text(device));
  }
  TORCH_CHECK_VALUE(false, "[cohort] Unknown device \"", name, "\" in the backend string \"", text,
                    "\" (known: ", base::join(names, ", "), ")");
}

std::vector<DeviceBackend> parse_pairs(const std::string& text, const std::vector<BackendCapability>& known) {
  std::vector<DeviceBackend> config;
  for (const auto& pair : base::split(text, ',')) {
    const auto parts = base::split(pair, ':');
    TORCH_CHECK_VALUE(parts.size() == 2, "Invalid device:backend pairing: \"", pair, "\" in the backend string \"",
                      text,
                      "\"; the form is \"<device>:<backend>,<device>:<backend>\", such as \"cpu:gloo,cuda:nccl\"");
    const auto device = parse_device(parts[0], text, known);
    for (const auto& earlier : config) {
      TORCH_CHECK_VALUE(earlier.device != device, "Duplicate device type ", parts[0], " in the backend string \"", text,
                        "\"");
    }
    TORCH_CHECK_VALUE(capability_in(parts[1], known).serves(device), "[cohort] backend \"", parts[1],
                      "\" does not serve ", parts[0], " tensors (backend string \"", text, "\")");
    config.push_back({device, parts[1]});
  }
  return config;
}

}  // namespace

bool BackendCapability::serves(c10::DeviceType device) const { return contains(devices, device); }

bool BackendCapability::is_default_for(c10::DeviceType device) const { return contains(default_for, device); }

std::string default_backend_for(c10::DeviceType device, const std::vector<BackendCapability>& known) {
  for (const auto& backend : known) {
    if (backend.is_default_for(device)) return backend.name;
  }
  TORCH_CHECK_VALUE(false, "Default backend not registered for device : ", device_text(device));
}

std::vector<DeviceBackend> parse_backend(const std::string& text, std::optional<c10::DeviceType> accelerator,
                                         const std::vector<BackendCapability>& known) {
  const auto name = lower(text);
  if (name.empty()) {
    const auto device = accelerator.value_or(c10::DeviceType::CPU);
    return {{device, default_backend_for(device, known)}};
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
