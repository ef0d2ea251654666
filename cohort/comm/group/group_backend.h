/// Which backend of a group serves what, and what it can do.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "cohort/comm/group/process_group.h"
#include "cohort/comm/registry/backend_config.h"

namespace cohort::comm {

/// The default group for null. Stays as long as that group is the default one.
const Group& resolve(const Group& group);
/// The group's backend for the tensor's device, without a trip through the dispatcher.
/// Throws c10::ValueError for undefined tensors and devices the group has no backend for.
c10::intrusive_ptr<c10d::Backend> backend_for(const Group& group, const at::Tensor& tensor, const char* operation);
/// The same for operations without tensors: the CPU's backend if there is one.
c10::intrusive_ptr<c10d::Backend> any_backend(const Group& group);
/// Where numbers and texts of this process travel: the CPU if the group serves it; else the current device, or the group's first.
c10::Device device_for_host_data(const Group& group);
/// What serves tensors on `device` can do, also in a group that was made without Cohort. Where nothing serves them: the least.
const BackendCapability& capability_of(const Group& group, c10::DeviceType device);

}  // namespace cohort::comm
