#include "cohort/comm/registry/backends.h"

#include <c10/util/Exception.h>

#include <list>

#include "cohort/comm/gloo/make_gloo_backend.h"
#include "cohort/comm/nccl/nccl_backend.h"
#include "cohort/comm/registry/cohort_backend.h"
#include "cohort/comm/shm/make_shm_backend.h"

namespace cohort {
namespace comm {
namespace {

using c10::DeviceType;
using c10d::ProcessGroup;

// A backend joins by one line. A list: entries keep their place when others are registered.
std::list<BackendKind>& table() {
  static auto* const kinds = new std::list<BackendKind>{
      {{"gloo", {DeviceType::CPU, DeviceType::CUDA}}, ProcessGroup::BackendType::GLOO, make_gloo_backend},
      {{"nccl", {DeviceType::CUDA}}, ProcessGroup::BackendType::NCCL, make_nccl_backend},
      {{"shm", {DeviceType::CPU}}, ProcessGroup::BackendType::CUSTOM, make_shm_backend},
      {{"cohort", {DeviceType::CPU, DeviceType::CUDA}}, ProcessGroup::BackendType::CUSTOM, make_cohort_backend},
  };
  return *kinds;
}

const BackendKind* find_kind(const std::string& name) {
  for (const auto& kind : table()) {
    if (kind.capability.name == name) return &kind;
  }
  return nullptr;
}

}  // namespace

std::vector<BackendCapability> known_backends() {
  std::vector<BackendCapability> known;
  for (const auto& kind : table()) known.push_back(kind.capability);
  return known;
}

const BackendKind& backend_kind(const std::string& name) {
  const auto* kind = find_kind(name);
  TORCH_CHECK_VALUE(kind, "Unknown backend \"", name, "\"");
  return *kind;
}

}  // namespace comm

void register_backend(const std::string& name, BackendCreator creator, const std::vector<c10::DeviceType>& devices) {
  TORCH_CHECK_VALUE(!comm::find_kind(name), "backend \"", name, "\" is already registered");
  TORCH_CHECK_VALUE(!name.empty() && name.find_first_of(":, ") == std::string::npos, "\"", name,
                    "\" cannot be the name of a backend");
  comm::table().push_back({{name, devices}, c10d::ProcessGroup::BackendType::CUSTOM, std::move(creator), true});
}

bool is_backend_available(const std::string& name) {
  return comm::find_kind(name) != nullptr && (name != "nccl" || is_nccl_available());
}

bool is_gloo_available() { return true; }

bool is_nccl_available() { return comm::nccl_available(); }

std::string get_default_backend_for_device(c10::DeviceType device) { return comm::default_backend_for(device); }

}  // namespace cohort
