#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "cohort/comm/nccl/nccl_backend.h"

namespace cohort::comm {

bool nccl_available() { return false; }

c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const BackendRequest&) {
  TORCH_CHECK(
      false,
      "Distributed package doesn't have NCCL built in: " COHORT_NCCL_MISSING
      "\n  hint: build Cohort with -DCOHORT_TORCH_ROOT=<a LibTorch with CUDA> and, where nccl.h lies neither beside it "
      "(pip's nvidia-nccl packages) nor in the CUDA toolkit, -DCOHORT_NCCL_INCLUDE_DIR=<its folder>; on CPU use "
      "backend \"gloo\"");
}

}  // namespace cohort::comm
