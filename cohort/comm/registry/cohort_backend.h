/// The backend "cohort": the best there is for each device. CPU tensors go through shared memory where all ranks can share it,
/// else over Gloo; CUDA tensors over NCCL where this build has it and a GPU is seen.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <string>

#include "cohort/comm/backend/backend_request.h"
#include "cohort/export.h"

namespace c10d {
class Backend;
}

namespace cohort::comm {

struct CpuBackend {
  c10::intrusive_ptr<c10d::Backend> backend;
  std::string name;    ///< "shm" or "gloo"
  std::string reason;  ///< why not "shm"
};

/// Collective. All ranks get the same one. Throws as make_shm_backend, which it tries unless `request.shm_obstacles` says
/// that it cannot be, and make_gloo_backend.
CpuBackend make_cpu_backend(const BackendRequest& request);

/// Collective. Says at INFO what it chose. Throws as make_cpu_backend and make_nccl_backend.
COHORT_TEST_API c10::intrusive_ptr<c10d::Backend> make_cohort_backend(const BackendRequest& request);

}  // namespace cohort::comm
