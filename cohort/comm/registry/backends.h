/// The table behind backend_registry.h.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <string>
#include <vector>

#include "cohort/comm/registry/backend_config.h"
#include "cohort/comm/registry/backend_registry.h"

namespace cohort::comm {

struct BackendKind {
  BackendCapability capability;
  c10d::ProcessGroup::BackendType type;
  BackendCreator create;
  bool is_registered = false;  ///< by the program
};

std::vector<BackendCapability> known_backends();
/// Throws c10::ValueError for a name that is not known.
const BackendKind& backend_kind(const std::string& name);

}  // namespace cohort::comm
