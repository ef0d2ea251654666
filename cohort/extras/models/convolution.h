/// Convolutions of residual networks: without bias, padded so that only the stride makes the image smaller.
#pragma once

#include <torch/nn/modules/conv.h>

#include <cstdint>

namespace cohort::models {

inline torch::nn::Conv2d make_convolution(int64_t in_channels, int64_t out_channels, int64_t kernel, int64_t stride = 1,
                                          int64_t groups = 1) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(in_channels, out_channels, kernel)
                               .stride(stride)
                               .padding(kernel / 2)
                               .groups(groups)
                               .bias(false));
}

}  // namespace cohort::models
