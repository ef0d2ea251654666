/// The bytes of one tensor's memory in Python's pickle of it: torch.save's legacy format (torch/serialization.py).
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>

namespace cohort::comm {

/// Requires: `flat` is contiguous, one-dimensional and on the CPU. Throws c10::ValueError for dtypes without a name in the
/// format.
std::string write_storage(const at::Tensor& flat);
/// Returns a new one-dimensional tensor. Throws c10::ValueError for malformed bytes.
at::Tensor read_storage(std::string_view bytes);

}  // namespace cohort::comm
