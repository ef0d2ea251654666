/// The table behind backend_registry.h: the only place that knows backends by name.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <string>
#include <vector>

#include "cohort/comm/registry/backend_config.h"
#include "cohort/comm/registry/backend_registry.h"
#include "cohort/export.h"

namespace cohort::comm {

class DirectCollectives;

struct BackendKind {
  BackendCapability capability;
  c10d::ProcessGroup::BackendType type;
  BackendCreator create;
  /// If null, the backend is part of every build.
  bool (*is_available)() = nullptr;
  bool is_registered = false;  ///< whether the program has registered it
  /// Whether it serves every accelerator, not only those in `capability.devices`.
  bool serves_any_accelerator = false;
};

std::vector<BackendCapability> known_backends();
/// Calls parse_backend() with the known backends and the accelerator of this process; backends that serve any accelerator have it
/// among their devices. Looks for devices: children of a later fork cannot use a GPU.
std::vector<DeviceBackend> backend_config(const std::string& text);
/// Throws c10::ValueError for an unknown name.
const BackendKind& backend_kind(const std::string& name);

/// Returns what serves the accelerator in backend "cohort": its default, if this build has it, otherwise the backend that was
/// registered for it first, or null.
const BackendKind* kind_for_accelerator(c10::DeviceType device);

/// Returns the capabilities of a backend by name; for an unknown name, those that hold for every backend.
const BackendCapability& capability_of(const std::string& name);
/// Returns the capabilities of an existing backend, by the name with which it was requested.
const BackendCapability& capability_of(const c10d::Backend& backend);
/// Returns the capabilities of what serves `device` in it: its part for that device, if it has parts.
const BackendCapability& capability_of(const c10d::Backend& backend, c10::DeviceType device);
/// Returns null for a backend without direct collectives. Cheap.
COHORT_TEST_API DirectCollectives* direct_collectives(c10d::Backend& backend);
/// Whether one of the backends has the capability.
bool any_can(const std::vector<DeviceBackend>& config, bool BackendCapability::*what);

}  // namespace cohort::comm
