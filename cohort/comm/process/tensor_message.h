/// The message that a TensorChannel sends for a tensor, beside the descriptor of its memory. Check it before decode_tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "cohort/base/error/result.h"
#include "cohort/export.h"

namespace cohort::comm {

/// The bytes on the wire, between processes of one host. `version` changes if anything below it does.
struct TensorMessage {
  static constexpr int kMaxDimensions = 64;
  char magic[8] = {'c', 'o', 'h', 'o', 'r', 't', '-', 't'};
  uint32_t version = 1;
  int32_t dtype = 0;  ///< c10::ScalarType
  uint32_t dimensions = 0;
  uint32_t requires_grad = 0;
  uint64_t memory_bytes =
      0;  ///< size of the file whose descriptor comes with the message; 0 means no descriptor, and the storage is empty
  uint64_t storage_offset = 0;  ///< in bytes, from the file's begin
  uint64_t storage_bytes = 0;
  int64_t element_offset = 0;  ///< offset of the tensor's first element in its storage
  int64_t sizes[kMaxDimensions] = {};
  int64_t strides[kMaxDimensions] = {};
};

/// Requires: check_shareable accepts the tensor, and its storage is in a SharedBlock or empty. At most kMaxDimensions dimensions.
TensorMessage encode_tensor(const at::Tensor& tensor);

/// Fails unless the message describes a tensor that this release can make, within its storage, which is within its memory.
COHORT_TEST_API base::Result<void> check_message(const TensorMessage& message);

/// Returns the tensor that a checked message describes, in `storage`.
at::Tensor decode_tensor(const TensorMessage& message, const c10::Storage& storage);

}  // namespace cohort::comm
