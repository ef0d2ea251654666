#include "cohort/comm/group/group_backend.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>

#include "cohort/comm/group/device.h"
#include "cohort/comm/group/world.h"
#include "cohort/comm/registry/backends.h"

namespace cohort::comm {
namespace {

std::string device_name(c10::DeviceType type) { return c10::DeviceTypeName(type, /*lower_case=*/true); }

std::string where_group_works(const Group& group) {
  const auto* record = world().default_group ? world().find(group) : nullptr;
  return record ? "group \"" + record->description + "\" has backend \"" + record->backend + "\""
                : "the group has no backend";
}

}  // namespace

const Group& resolve(const Group& group) {
  if (group) return group;
  if (!world().default_group) default_group();  // throws
  return world().default_group;
}

c10::intrusive_ptr<c10d::Backend> backend_for(const Group& group, const at::Tensor& tensor, const char* operation) {
  TORCH_CHECK_VALUE(tensor.defined(), "[cohort] Invalid tensor for ", operation, ": it is undefined");
  const auto& owner = resolve(group);
  const auto type = tensor.device().type();
  try {
    return owner->getBackend(type);
  } catch (const c10::Error&) {
    // The engine's text names neither the group nor the solution.
  }
  TORCH_CHECK_VALUE(false, "[cohort] ", operation, " got a tensor on ", device_name(type), ", but ",
                    where_group_works(owner),
                    ", which does not serve that device; move the tensor, or give a backend for both devices, such as "
                    "\"cpu:gloo,cuda:nccl\", to init_process_group");
}

c10::intrusive_ptr<c10d::Backend> any_backend(const Group& group) {
  const auto owner = resolve(group);
  const auto devices = owner->getDeviceTypes();
  TORCH_CHECK_VALUE(!devices.empty(), "[cohort] the group has no backend");
  for (const auto& device : devices) {
    if (device.is_cpu()) return owner->getBackend(device.type());
  }
  return owner->getBackend(devices.front().type());
}

// Follows PyTorch's _get_object_coll_device.
c10::Device device_for_host_data(const Group& group) {
  const auto devices = resolve(group)->getDeviceTypes();
  const bool serves_cpu =
      std::any_of(devices.begin(), devices.end(), [](const c10::Device& device) { return device.is_cpu(); });
  if (devices.empty() || serves_cpu) return c10::kCPU;
  const auto current = current_device();
  return current.type() == devices.front().type() ? current : c10::Device(devices.front().type());
}

const BackendCapability& capability_of(const Group& group, c10::DeviceType device) {
  const auto owner = resolve(group);
  // A group throws if it is asked for a backend that it lacks.
  if (owner->hasBackends()) {
    for (const auto& served : owner->getDeviceTypes()) {
      if (served.type() == device) return capability_of(*owner->getBackend(device), device);
    }
  }
  return capability_of(std::string());
}

}  // namespace cohort::comm
