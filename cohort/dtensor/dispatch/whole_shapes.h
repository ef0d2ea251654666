/// Sizes and strides as one process would have them: asked of LibTorch itself, with tensors without data.
#pragma once

#include <optional>
#include <vector>

#include "cohort/dtensor/dispatch/rule.h"

namespace cohort::dtensor {

/// Of the results, one after the other: the operation once more, on tensors of the whole sizes. Throws what LibTorch throws for
/// arguments that are wrong. Not for operations that are told on which device their results lie.
std::vector<Shape> whole_shapes(const Call& call);
/// Of at::empty_like(tensor, format).
Shape shape_like(const at::Tensor& tensor, std::optional<at::MemoryFormat> format = {});

}  // namespace cohort::dtensor
