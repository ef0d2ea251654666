/// The backend "cohort": chooses the best backend for each device. CPU tensors use shared memory if all ranks can share it,
/// otherwise Gloo. An accelerator's tensors use what kind_for_accelerator() finds: NCCL for CUDA if this build has it, or a
/// backend that the program has registered. No other code chooses: a group without a named backend also gets its CPU backend
/// from here.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <string>
#include <vector>

#include "cohort/comm/backend/backend_request.h"
#include "cohort/comm/registry/backend_config.h"
#include "cohort/export.h"

namespace c10d {
class Backend;
}

namespace cohort::comm {

/// Whether make_cpu_backend makes a group of these backends: `named` is empty, and the group is for CPU tensors only.
/// `config`: the backends that "" stands for.
bool chooses_backend(const std::string& named, const std::vector<DeviceBackend>& config);

struct CpuBackend {
  c10::intrusive_ptr<c10d::Backend> backend;
  std::string name;    ///< "shm" or "gloo"
  std::string reason;  ///< why not "shm"
};

/// Collective. All ranks get the same backend. Tries make_shm_backend unless `request.shm_obstacles` has a reason against it,
/// then make_gloo_backend, and throws what they throw.
CpuBackend make_cpu_backend(const BackendRequest& request);

/// Collective. Logs its choice at INFO. Throws as make_cpu_backend and as the accelerator's backend.
COHORT_TEST_API c10::intrusive_ptr<c10d::Backend> make_cohort_backend(const BackendRequest& request);

}  // namespace cohort::comm
