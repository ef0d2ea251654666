/// What a TensorChannel says of a tensor beside the descriptor of its memory. A message is believed only after decode_tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "cohort/base/error/result.h"
#include "cohort/export.h"

namespace cohort::comm {

/// The bytes on the wire, between processes of one host. `version` changes with anything below it.
struct TensorMessage {
  static constexpr int kMaxDimensions = 64;
  char magic[8] = {'c', 'o', 'h', 'o', 'r', 't', '-', 't'};
  uint32_t version = 1;
  int32_t dtype = 0;  ///< c10::ScalarType
  uint32_t dimensions = 0;
  uint32_t requires_grad = 0;
  uint64_t memory_bytes =
      0;  ///< of the file whose descriptor comes with the message; 0: none comes, the storage is empty
  uint64_t storage_offset = 0;  ///< in bytes, from the file's begin
  uint64_t storage_bytes = 0;
  int64_t element_offset = 0;  ///< of the tensor's first element in its storage
  int64_t sizes[kMaxDimensions] = {};
  int64_t strides[kMaxDimensions] = {};
};

/// Requires a tensor that check_shareable accepts, whose storage is in a SharedBlock or empty. At most kMaxDimensions.
TensorMessage encode_tensor(const at::Tensor& tensor);

/// An error unless it describes a tensor that this release can make and that lies within its storage, and that within its memory.
COHORT_TEST_API base::Result<void> check_message(const TensorMessage& message);

/// The tensor that a checked message describes, in `storage`.
at::Tensor decode_tensor(const TensorMessage& message, const c10::Storage& storage);

}  // namespace cohort::comm
