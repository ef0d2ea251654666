/// Tensors as pictures for TensorBoard.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace cohort::train::detail {

/// uint8 [height, width, channels], contiguous, on the CPU; 3 or 4 channels (one becomes three). `dataformats`: any order of C, H
/// and W, or of H and W. uint8 is taken as it is, anything else as 0 to 1. c10::ValueError for what is no such picture.
at::Tensor picture_of(const at::Tensor& image, const std::string& dataformats);
/// Of a batch, any order of N, C, H and W: side by side, up to eight in a row, 3 channels.
at::Tensor picture_of_all(const at::Tensor& images, const std::string& dataformats);

}  // namespace cohort::train::detail
