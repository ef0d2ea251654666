#include "cohort/comm/registry/cohort_backend.h"

#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "cohort/base/log/log.h"
#include "cohort/base/text/text.h"
#include "cohort/comm/backend/accelerator.h"
#include "cohort/comm/backend/per_device_backend.h"
#include "cohort/comm/gloo/make_gloo_backend.h"
#include "cohort/comm/registry/backends.h"
#include "cohort/comm/shm/make_shm_backend.h"

namespace cohort::comm {
namespace {

BackendRequest with_own_keys(const BackendRequest& request, const std::string& prefix) {
  auto own = request;
  own.store = c10::make_intrusive<c10d::PrefixStore>(prefix, request.store);
  return own;
}

}  // namespace

bool chooses_backend(const std::string& named, const std::vector<DeviceBackend>& config) {
  return named.empty() && config.size() == 1 && config.front().device == c10::DeviceType::CPU;
}

CpuBackend make_cpu_backend(const BackendRequest& request) {
  std::string reason = request.shm_obstacles.empty() ? "" : request.shm_obstacles.front();
  if (reason.empty()) {
    try {
      return {make_shm_backend(request), "shm", ""};
    } catch (const CannotShareMemory& error) {
      reason = error.reason();
    }
  }
  return {make_gloo_backend(request), "gloo", reason};
}

c10::intrusive_ptr<c10d::Backend> make_cohort_backend(const BackendRequest& request) {
  auto cpu = make_cpu_backend(request);
  std::vector<PerDeviceBackend::Part> parts{{c10::DeviceType::CPU, cpu.backend}};
  std::string served;
  const auto accelerator = accelerator_type();
  if (const auto* kind = accelerator ? kind_for_accelerator(*accelerator) : nullptr) {
    const auto& name = kind->capability.name;
    parts.push_back({*accelerator, kind->create(with_own_keys(request, name))});
    TORCH_CHECK(parts.back().backend, "[cohort] the creator of backend \"", name, "\" returned no backend");
    served = fmt::format(",{}:{}", c10::DeviceTypeName(*accelerator, /*lower_case=*/true), name);
  }
  base::log_info(fmt::format("group \"{}\": rank {} of {}, backend cpu:{}{}{}", request.group_name, request.rank,
                             request.world_size, cpu.name, served, cpu.reason.empty() ? "" : ", as " + cpu.reason));
  return c10::make_intrusive<PerDeviceBackend>("cohort", std::move(parts), request.timeout);
}

}  // namespace cohort::comm
