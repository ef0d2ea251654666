/// Converts tensors to pictures for TensorBoard.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace cohort::train::detail {

/// Returns uint8 [height, width, channels], contiguous, on the CPU, with 3 or 4 channels (one channel becomes three).
/// `dataformats`: any order of C, H and W, or of H and W. Takes uint8 unchanged, and other dtypes as 0 to 1. Throws
/// c10::ValueError for other tensors.
at::Tensor picture_of(const at::Tensor& image, const std::string& dataformats);
/// Puts a batch, with any order of N, C, H and W, side by side, up to eight images per row, with 3 channels.
at::Tensor picture_of_all(const at::Tensor& images, const std::string& dataformats);

}  // namespace cohort::train::detail
