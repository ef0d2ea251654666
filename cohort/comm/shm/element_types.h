/// LibTorch's dtypes and reductions as the engine's.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "cohort/shm/engine/group.h"
#include "cohort/shm/terms/types.h"

namespace cohort::comm {

/// The engine's type for elements of a ScalarType: complex numbers are pairs of reals, types that the engine lacks are bytes.
struct ElementType {
  shm::DType dtype = shm::DType::kBytes;
  size_t count = 1;  ///< number of `dtype` values per element
};
ElementType element_type(at::ScalarType dtype);

/// Returns the content of a plain tensor.
inline shm::Elements elements_of(const at::Tensor& tensor) {
  const auto type = element_type(tensor.scalar_type());
  return {type.dtype, static_cast<size_t>(tensor.numel()) * type.count};
}

/// Whether the type is a float8: these are reduced as float32.
bool is_reduced_as_float(at::ScalarType dtype);

/// Throws c10::ValueError, naming op and dtype, for combinations that cannot be reduced; see reducible.h.
shm::Reduction engine_reduction(const char* operation, const c10d::ReduceOp& op, at::ScalarType dtype);

}  // namespace cohort::comm
