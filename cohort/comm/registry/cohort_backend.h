/// The backend "cohort": the best there is for each device. CPU tensors go through shared memory where all ranks can share it,
/// else over Gloo; an accelerator's over what kind_for_accelerator() finds: NCCL for CUDA where this build has it, or a backend
/// that the program has registered. Nobody else chooses: a group of which no
/// backend is named gets its CPU backend from here, too.
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

/// True if a group of these backends is to be made by make_cpu_backend: none is `named`, and it is for CPU tensors alone.
/// `config`: what "" stands for.
bool chooses_backend(const std::string& named, const std::vector<DeviceBackend>& config);

struct CpuBackend {
  c10::intrusive_ptr<c10d::Backend> backend;
  std::string name;    ///< "shm" or "gloo"
  std::string reason;  ///< why not "shm"
};

/// Collective. All ranks get the same one. Throws as make_shm_backend, which it tries unless `request.shm_obstacles` says
/// that it cannot be, and make_gloo_backend.
CpuBackend make_cpu_backend(const BackendRequest& request);

/// Collective. Says at INFO what it chose. Throws as make_cpu_backend and what makes the accelerator's.
COHORT_TEST_API c10::intrusive_ptr<c10d::Backend> make_cohort_backend(const BackendRequest& request);

}  // namespace cohort::comm
