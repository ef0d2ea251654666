/// Buffers as tensors.
#pragma once

#include <ATen/ATen.h>

#include "benchmarks/collectives/collective_case.h"

namespace cohort::bench {

inline at::ScalarType scalar_type(DType dtype) { return dtype == DType::kFloat32 ? at::kFloat : at::kBFloat16; }

/// Returns a tensor of the case's dtype over `data`, which the caller owns.
inline at::Tensor tensor_over(const CollectiveCase& what, std::byte* data, size_t num_bytes) {
  return at::from_blob(data, {static_cast<int64_t>(num_bytes / size_of(what.dtype))}, scalar_type(what.dtype));
}

}  // namespace cohort::bench
