/// The backends of a group: which one serves a tensor, and what it can do.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "cohort/comm/group/process_group.h"
#include "cohort/comm/registry/backend_config.h"

namespace cohort::comm {

/// Returns the default group for null. The reference is valid as long as that group is the default one.
const Group& resolve(const Group& group);
/// Returns the group's backend for the tensor's device, without a detour through the dispatcher.
/// Throws c10::ValueError for undefined tensors and devices for which the group has no backend.
c10::intrusive_ptr<c10d::Backend> backend_for(const Group& group, const at::Tensor& tensor, const char* operation);
/// Returns the backend for operations without tensors: the CPU's backend if there is one.
c10::intrusive_ptr<c10d::Backend> any_backend(const Group& group);
/// Returns the device for this process's numbers and texts: the CPU if the group serves it, otherwise the current device, or the
/// group's first.
c10::Device device_for_host_data(const Group& group);
/// Returns what the backend for `device` can do, also in a group made without Cohort. If nothing serves the device: the minimum.
const BackendCapability& capability_of(const Group& group, c10::DeviceType device);

}  // namespace cohort::comm
