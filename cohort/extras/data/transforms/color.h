/// Changes of colour, as in torchvision.transforms.functional on tensors (_functional_tensor.py): the same formulas, the same
/// rounding for uint8. Each takes [channels, height, width] of 1 or 3 channels. Private to this folder.
#pragma once

#include <ATen/core/Tensor.h>

#include "cohort/export.h"

namespace cohort::data {

/// Throws c10::TypeError unless the image has 1 or 3 channels.
void check_channels(const at::Tensor& image);

/// 0 is black, 1 the image itself; so with grey for the next two, and a blurred image for the fourth.
COHORT_TEST_API at::Tensor adjust_brightness(const at::Tensor& image, double factor);
COHORT_TEST_API at::Tensor adjust_contrast(const at::Tensor& image, double factor);
COHORT_TEST_API at::Tensor adjust_saturation(const at::Tensor& image, double factor);
COHORT_TEST_API at::Tensor adjust_sharpness(const at::Tensor& image, double factor);
/// Turns the circle of colours; a whole turn is 1.
COHORT_TEST_API at::Tensor adjust_hue(const at::Tensor& image, double factor);

/// Keeps so many bits of each value. Requires uint8.
COHORT_TEST_API at::Tensor posterize(const at::Tensor& image, int bits);
/// Turns values round that are not below the threshold.
COHORT_TEST_API at::Tensor solarize(const at::Tensor& image, double threshold);
/// Stretches each channel until it goes from 0 to the largest value.
COHORT_TEST_API at::Tensor autocontrast(const at::Tensor& image);
/// Each value as often as any other, as near as can be, in each channel. Requires uint8.
COHORT_TEST_API at::Tensor equalize(const at::Tensor& image);

}  // namespace cohort::data
