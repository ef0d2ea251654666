#include "cohort/comm/collectives/shm_empty.h"

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/ProcessGroupWrapper.hpp>

#include "cohort/comm/backend/per_device_backend.h"
#include "cohort/comm/collectives/arguments.h"
#include "cohort/comm/group/world.h"
#include "cohort/comm/shm/shm_backend.h"
#include "cohort/job/call_site.h"

namespace cohort {
namespace {

c10::intrusive_ptr<c10d::Backend> unwrapped(c10::intrusive_ptr<c10d::Backend> backend) {
  const auto* wrapper = dynamic_cast<const c10d::ProcessGroupWrapper*>(backend.get());
  return wrapper ? wrapper->getWrappedPg() : backend;
}

comm::ShmBackend* find_shm(c10d::Backend* backend) {
  const auto* per_device = dynamic_cast<const comm::PerDeviceBackend*>(backend);
  return dynamic_cast<comm::ShmBackend*>(per_device ? per_device->find(c10::DeviceType::CPU) : backend);
}

}  // namespace

bool has_shared_memory(const Group& group) {
  if (!is_member(group)) return false;
  const auto& resolved = comm::resolve(group);
  // Not any_backend(): a group made without Cohort has none of ours, and asking for a missing one throws.
  if (!resolved->hasBackends()) return false;
  for (const auto& device : resolved->getDeviceTypes()) {
    if (device.is_cpu()) return find_shm(unwrapped(resolved->getBackend(device.type())).get()) != nullptr;
  }
  return false;
}

at::Tensor shm_empty(at::IntArrayRef sizes, const at::TensorOptions& options, const Group& group) {
  const job::CallSite site(__builtin_return_address(0));
  TORCH_CHECK_VALUE(is_member(group), "shm_empty: this rank is not a member of the given group");
  TORCH_CHECK_VALUE(options.device().is_cpu() && options.layout() == at::kStrided,
                    "shm_empty makes dense CPU tensors, got ", options.device(), " and layout ", options.layout());
  const auto backend = unwrapped(comm::any_backend(group));
  auto* const shm = find_shm(backend.get());
  if (!shm) {
    const auto* record = comm::world().default_group ? comm::world().find(group) : nullptr;
    TORCH_CHECK_VALUE(false, "shm_empty needs a group of backend \"shm\", but group \"",
                      record ? record->description : "?", "\" has \"", backend->getBackendName(),
                      "\"; name \"shm\" in init_process_group or new_group, or use at::empty");
  }
  return shm->make_shared_tensor(sizes, options);
}

size_t shm_memory_allocated() { return shm::Group::num_allocated_bytes(); }

}  // namespace cohort
