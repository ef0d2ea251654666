/// The bytes of one tensor's memory inside Python's pickle of it: torch.save's older format (torch/serialization.py).
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>

namespace cohort::comm {

/// `flat` is contiguous, one-dimensional and on the CPU. Throws c10::ValueError for dtypes the format has no name for.
std::string write_storage(const at::Tensor& flat);
/// A new one-dimensional tensor. Throws c10::ValueError for malformed bytes.
at::Tensor read_storage(std::string_view bytes);

}  // namespace cohort::comm
