#include "cohort/comm/registry/backends.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <list>

#include "cohort/comm/backend/accelerator.h"
#include "cohort/comm/backend/per_device_backend.h"
#include "cohort/comm/gloo/make_gloo_backend.h"
#include "cohort/comm/nccl/nccl_backend.h"
#include "cohort/comm/registry/cohort_backend.h"
#include "cohort/comm/shm/make_shm_backend.h"

namespace cohort {
namespace comm {
namespace {

using c10::DeviceType;
using c10d::ProcessGroup;

// The table: one row for each backend. A list, so that rows keep their address when others are registered.
std::list<BackendKind>& table() {
  static auto* const kinds = new std::list<BackendKind>{
      {{.name = "gloo",
        .devices = {DeviceType::CPU, DeviceType::CUDA},
        .default_for = {DeviceType::CPU},
        .calls_roll = true,
        .listens = true,
        .has_monitored_barrier = true,
        .splits_bound_only = false,
        .scatters_all_to_all = true},
       ProcessGroup::BackendType::GLOO,
       make_gloo_backend},
      {{.name = "nccl",
        .devices = {DeviceType::CUDA},
        .default_for = {DeviceType::CUDA},
        .default_timeout = std::chrono::minutes(10),
        .owns_gpu = true,
        .reduces_gathered = true},
       ProcessGroup::BackendType::NCCL,
       make_nccl_backend,
       nccl_available},
      {{.name = "shm",
        .devices = {DeviceType::CPU},
        .calls_roll = true,
        .is_joinable = true,
        .shares_memory = true,
        .runs_in_caller = true,
        .has_monitored_barrier = true},
       ProcessGroup::BackendType::CUSTOM,
       make_shm_backend},
      {{.name = "cohort",
        .devices = {DeviceType::CPU, DeviceType::CUDA},
        .calls_roll = true,
        .listens = true,
        .is_joinable = true,
        .has_monitored_barrier = true,
        .splits_bound_only = false},
       ProcessGroup::BackendType::CUSTOM,
       make_cohort_backend,
       /*is_available=*/nullptr,
       /*is_registered=*/false,
       /*serves_any_accelerator=*/true},
  };
  return *kinds;
}

const BackendKind* find_kind(const std::string& name) {
  for (const auto& kind : table()) {
    if (kind.capability.name == name) return &kind;
  }
  return nullptr;
}

bool is_usable(const BackendKind& kind) { return !kind.is_available || kind.is_available(); }

// Returns the devices that have no default backend yet.
std::vector<DeviceType> without_default(const std::vector<DeviceType>& devices) {
  std::vector<DeviceType> result;
  for (const auto device : devices) {
    const bool is_taken = std::any_of(table().begin(), table().end(),
                                      [&](const BackendKind& kind) { return kind.capability.is_default_for(device); });
    if (!is_taken) result.push_back(device);
  }
  return result;
}

// Returns the backend's name; empty for a backend without one, for which c10d throws.
std::string name_of(const c10d::Backend& backend) {
  try {
    return backend.getBackendName();
  } catch (const c10::Error&) {
    return {};
  }
}

}  // namespace

std::vector<BackendCapability> known_backends() {
  std::vector<BackendCapability> known;
  for (const auto& kind : table()) known.push_back(kind.capability);
  return known;
}

std::vector<DeviceBackend> backend_config(const std::string& text) {
  const auto accelerator = accelerator_type();
  auto known = known_backends();
  for (auto& backend : known) {
    const bool is_missing = accelerator && !backend.serves(*accelerator);
    if (is_missing && backend_kind(backend.name).serves_any_accelerator) backend.devices.push_back(*accelerator);
  }
  return parse_backend(text, accelerator, known);
}

const BackendKind* kind_for_accelerator(c10::DeviceType device) {
  for (const auto& kind : table()) {
    if (kind.capability.is_default_for(device) && is_usable(kind)) return &kind;
  }
  for (const auto& kind : table()) {
    if (kind.is_registered && kind.capability.serves(device)) return &kind;
  }
  return nullptr;
}

const BackendKind& backend_kind(const std::string& name) {
  const auto* kind = find_kind(name);
  TORCH_CHECK_VALUE(kind, "[cohort] Unknown backend \"", name, "\"");
  return *kind;
}

const BackendCapability& capability_of(const std::string& name) {
  static const auto* const least = new BackendCapability;
  const auto* kind = find_kind(name);
  return kind ? kind->capability : *least;
}

const BackendCapability& capability_of(const c10d::Backend& backend) { return capability_of(name_of(backend)); }

const BackendCapability& capability_of(const c10d::Backend& backend, c10::DeviceType device) {
  const auto* serving = find_serving(backend, device);
  return capability_of(serving ? name_of(*serving) : std::string());
}

DirectCollectives* direct_collectives(c10d::Backend& backend) { return shm_direct_collectives(backend); }

bool any_can(const std::vector<DeviceBackend>& config, bool BackendCapability::*what) {
  return std::any_of(config.begin(), config.end(),
                     [&](const auto& entry) { return capability_of(entry.backend).*what; });
}

}  // namespace comm

void register_backend(const std::string& name, BackendCreator creator, const std::vector<c10::DeviceType>& devices) {
  TORCH_CHECK_VALUE(!comm::find_kind(name), "[cohort] backend \"", name, "\" is already registered");
  TORCH_CHECK_VALUE(!name.empty() && name.find_first_of(":, ") == std::string::npos, "[cohort] \"", name,
                    "\" cannot be the name of a backend");
  static const std::vector<c10::DeviceType> unspecified{c10::DeviceType::CPU, c10::DeviceType::CUDA};
  comm::table().push_back({.capability = {.name = name,
                                          .devices = devices.empty() ? unspecified : devices,
                                          .default_for = comm::without_default(devices)},
                           .type = c10d::ProcessGroup::BackendType::CUSTOM,
                           .create = std::move(creator),
                           .is_registered = true,
                           .serves_any_accelerator = devices.empty()});
}

bool is_backend_available(const std::string& name) {
  const auto* kind = comm::find_kind(name);
  return kind && comm::is_usable(*kind);
}

bool is_gloo_available() { return true; }

bool is_nccl_available() { return comm::nccl_available(); }

std::string get_default_backend_for_device(c10::DeviceType device) {
  return comm::default_backend_for(device, comm::known_backends());
}

}  // namespace cohort
