/// Buffers that state dicts leave out, like register_buffer(..., persistent=False) in Python, which LibTorch lacks.
///
///     struct AttentionImpl : torch::nn::Module {
///       AttentionImpl() {
///         mask = register_buffer("mask", torch::ones({64, 64}).tril());
///         cohort::checkpoint::mark_non_persistent(*this, "mask");
///       }
///       at::Tensor mask;
///     };
///
/// The mark belongs to the buffer: it stays when the module is wrapped, moved to a device or converted. A clone of the module
/// registers its buffers anew, and marks them anew. LibTorch's own modules have no buffer that Python keeps non-persistent.
/// Thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "cohort/export.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace cohort::checkpoint {

/// Throws c10::ValueError if the module itself has no buffer of this name, or it is undefined.
COHORT_API void mark_non_persistent(const torch::nn::Module& module, const std::string& buffer);
COHORT_API void unmark_non_persistent(const torch::nn::Module& module, const std::string& buffer);
COHORT_API bool is_non_persistent(const at::Tensor& buffer);

}  // namespace cohort::checkpoint
