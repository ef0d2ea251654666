/// The backends a group can be made of: Gloo and NCCL, and those a program adds (PyTorch's Backend.register_backend).
#pragma once

#include <c10/core/DeviceType.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <functional>
#include <string>
#include <vector>

#include "cohort/comm/backend/backend_request.h"
#include "cohort/export.h"

namespace cohort {

/// Makes one rank's backend; called on every member of a group, in the same order.
using BackendCreator = std::function<c10::intrusive_ptr<c10d::Backend>(const comm::BackendRequest&)>;

/// Makes `name` (lower case) known to init_process_group and new_group. One Backend object serves all devices of a group
/// that name it. Where `devices` name an accelerator that has no default backend yet, this one becomes it (PyTorch's
/// default_device_backend_map), and serves it in groups of backend "cohort"; there also CUDA in a build without NCCL. No
/// `devices`: CPU, CUDA and any other accelerator. Throws c10::ValueError when the name is taken.
COHORT_API void register_backend(const std::string& name, BackendCreator creator,
                                 const std::vector<c10::DeviceType>& devices = {});

/// True if groups can be made of it in this build.
COHORT_API bool is_backend_available(const std::string& name);
COHORT_API bool is_gloo_available();
COHORT_API bool is_nccl_available();

/// "gloo" for CPU, "nccl" for CUDA, else what register_backend made it. Throws c10::ValueError for other devices.
COHORT_API std::string get_default_backend_for_device(c10::DeviceType device);

}  // namespace cohort
