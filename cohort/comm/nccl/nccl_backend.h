/// LibTorch's NCCL engine, with failures that explain themselves. nccl_backend.cpp is compiled if LibTorch has CUDA and NCCL's
/// header is found, otherwise nccl_stub.cpp.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include "cohort/comm/backend/backend_request.h"
#include "cohort/export.h"

namespace c10d {
class Backend;
}

namespace cohort::comm {

/// Whether this build has NCCL, with or without a GPU.
bool nccl_available();

/// Makes the engine (torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp) with PyTorch's options. Its Works follow CUDA streams:
/// wait() makes the current stream wait and returns at once. Ranks connect at the first operation, or here if the request
/// has a device_id.
/// Throws c10::Error, with the way to get NCCL, if the build has none; c10::ValueError if the process sees no GPU
/// or NCCL_SOCKET_IFNAME leaves no interface.
COHORT_TEST_API c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const BackendRequest& request);

}  // namespace cohort::comm
