/// The backends of groups: Gloo, NCCL and shm, and backends that a program registers (PyTorch's Backend.register_backend).
#pragma once

#include <c10/core/DeviceType.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <functional>
#include <string>
#include <vector>

#include "cohort/comm/backend/backend_request.h"
#include "cohort/export.h"

namespace cohort {

/// Makes one rank's backend; called on every member of a group, in the same order on all.
using BackendCreator = std::function<c10::intrusive_ptr<c10d::Backend>(const comm::BackendRequest&)>;

/// Registers `name` (lower case) for init_process_group and new_group. One Backend object serves all devices of a group that
/// name it. If `devices` have an accelerator without a default backend, this one becomes its default (PyTorch's
/// default_device_backend_map) and serves it in groups of backend "cohort"; the latter also holds for CUDA in a build without
/// NCCL. If `devices` is empty: CPU, CUDA and any other accelerator. Throws c10::ValueError if the name is taken.
COHORT_API void register_backend(const std::string& name, BackendCreator creator,
                                 const std::vector<c10::DeviceType>& devices = {});

/// Whether this build can make groups with the backend.
COHORT_API bool is_backend_available(const std::string& name);
COHORT_API bool is_gloo_available();
COHORT_API bool is_nccl_available();

/// Returns "gloo" for CPU, "nccl" for CUDA, otherwise the registered default. Throws c10::ValueError for other devices.
COHORT_API std::string get_default_backend_for_device(c10::DeviceType device);

}  // namespace cohort
