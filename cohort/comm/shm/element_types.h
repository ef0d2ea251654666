/// LibTorch's dtypes and reductions in the engine's words.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "cohort/shm/engine/group.h"
#include "cohort/shm/terms/types.h"

namespace cohort::comm {

/// How the engine sees elements of a ScalarType: complex numbers as pairs of reals, what it has no word for as bytes.
struct ElementType {
  shm::DType dtype = shm::DType::kBytes;
  size_t count = 1;  ///< of `dtype` per element
};
ElementType element_type(at::ScalarType dtype);

/// The content of a plain tensor.
inline shm::Elements elements_of(const at::Tensor& tensor) {
  const auto type = element_type(tensor.scalar_type());
  return {type.dtype, static_cast<size_t>(tensor.numel()) * type.count};
}

/// True for float8 of every kind: reduced as float32.
bool is_reduced_as_float(at::ScalarType dtype);

/// Throws c10::ValueError, naming op and dtype, for what cannot be reduced; see reducible.h.
shm::Reduction engine_reduction(const char* operation, const c10d::ReduceOp& op, at::ScalarType dtype);

}  // namespace cohort::comm
