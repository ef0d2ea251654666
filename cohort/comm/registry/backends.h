/// The table behind backend_registry.h: the one place that knows backends by their names.
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
  /// Null: it is part of every build.
  bool (*is_available)() = nullptr;
  bool is_registered = false;  ///< by the program
  /// It serves every accelerator, not only those in `capability.devices`.
  bool serves_any_accelerator = false;
};

std::vector<BackendCapability> known_backends();
/// parse_backend() with the known backends and the accelerator of this process, which backends that serve any have among their
/// devices. Looks for devices: a process that forks afterwards has children that cannot use a GPU.
std::vector<DeviceBackend> backend_config(const std::string& text);
/// Throws c10::ValueError for a name that is not known.
const BackendKind& backend_kind(const std::string& name);

/// What serves the accelerator of backend "cohort": its default, where this build has it, else the backend that was registered
/// for it first. Null: there is none.
const BackendKind* kind_for_accelerator(c10::DeviceType device);

/// The row of a name; of one that is not known, what holds of every backend.
const BackendCapability& capability_of(const std::string& name);
/// The row of a backend that has been made, by the name it was asked for.
const BackendCapability& capability_of(const c10d::Backend& backend);
/// The row of what serves `device` in it: its part for that device, if it has parts.
const BackendCapability& capability_of(const c10d::Backend& backend, c10::DeviceType device);
/// Null for a backend that has none. Cheap.
COHORT_TEST_API DirectCollectives* direct_collectives(c10d::Backend& backend);
/// True if one of the backends can.
bool any_can(const std::vector<DeviceBackend>& config, bool BackendCapability::*what);

}  // namespace cohort::comm
