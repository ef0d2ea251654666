/// Tensors that are views of a mapped file.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "cohort/files/input/private_mapping.h"

namespace cohort::checkpoint {

/// Returns a tensor of the elements that begin at byte `offset` of the file. The mapping lives as long as the tensor. Returns an
/// undefined tensor if the elements are not aligned as tensors must be, or are past the end of the file.
at::Tensor mapped_tensor(const std::shared_ptr<const files::PrivateMapping>& mapping, uint64_t offset,
                         const std::vector<int64_t>& shape, c10::ScalarType dtype);

}  // namespace cohort::checkpoint
