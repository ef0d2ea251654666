/// Global sizes and strides of results, as one process would have them. LibTorch computes them on tensors without data.
#pragma once

#include <optional>
#include <vector>

#include "cohort/dtensor/dispatch/rule.h"

namespace cohort::dtensor {

/// Returns the results' global shapes, one after the other, by running the operation again on tensors with global sizes. Throws
/// what LibTorch throws for wrong arguments. Not for operations with an argument for the results' device.
std::vector<Shape> global_shapes(const Call& call);
/// Returns the shape of at::empty_like(tensor, format).
Shape shape_like(const at::Tensor& tensor, std::optional<at::MemoryFormat> format = {});

}  // namespace cohort::dtensor
