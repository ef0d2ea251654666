/// Color transforms, as torchvision.transforms.functional on tensors (_functional_tensor.py): the same formulas, and the same
/// rounding for uint8. Each takes [channels, height, width] with 1 or 3 channels. Private to this folder.
#pragma once

#include <ATen/core/Tensor.h>

#include "cohort/export.h"

namespace cohort::data {

/// Throws c10::TypeError unless the image has 1 or 3 channels.
void check_channels(const at::Tensor& image);

/// Blend the image with black (brightness), its mean gray (contrast), its gray version (saturation), or a blurred version
/// (sharpness). A factor of 1 returns the image itself, 0 the other one.
COHORT_TEST_API at::Tensor adjust_brightness(const at::Tensor& image, double factor);
COHORT_TEST_API at::Tensor adjust_contrast(const at::Tensor& image, double factor);
COHORT_TEST_API at::Tensor adjust_saturation(const at::Tensor& image, double factor);
COHORT_TEST_API at::Tensor adjust_sharpness(const at::Tensor& image, double factor);
/// Shifts the hue; 1 is the full color circle.
COHORT_TEST_API at::Tensor adjust_hue(const at::Tensor& image, double factor);

/// Keeps this many bits of each value. Requires uint8.
COHORT_TEST_API at::Tensor posterize(const at::Tensor& image, int bits);
/// Inverts values that are not below the threshold.
COHORT_TEST_API at::Tensor solarize(const at::Tensor& image, double threshold);
/// Stretches each channel to the range from 0 to the largest value.
COHORT_TEST_API at::Tensor autocontrast(const at::Tensor& image);
/// Equalizes the histogram of each channel. Requires uint8.
COHORT_TEST_API at::Tensor equalize(const at::Tensor& image);

}  // namespace cohort::data
