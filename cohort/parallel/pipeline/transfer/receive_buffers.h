/// ReceiveBuffers: memory for tensors from other ranks, reused from microbatch to microbatch and from step to step: new pages
/// cost more than the copy into them.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <vector>

#include "cohort/export.h"
#include "cohort/parallel/pipeline/transfer/tensor_header.h"

namespace cohort::pipeline {

class ReceiveBuffers {
 public:
  /// Returns an uninitialized tensor whose memory nobody else has. On accelerators, which reuse memory themselves, a new one.
  COHORT_TEST_API at::Tensor take(const TensorMeta& meta, const c10::Device& device);
  /// After a step: frees the buffers that it has not used.
  COHORT_TEST_API void end_step();
  size_t size() const { return buffers_.size(); }

 private:
  struct Buffer {
    at::Tensor tensor;
    bool is_used = true;  ///< in this step
  };
  std::vector<Buffer> buffers_;
};

}  // namespace cohort::pipeline
