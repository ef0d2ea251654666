/// Checks of images in transforms. Private to this folder.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <initializer_list>

#include "cohort/export.h"

namespace cohort::data {

/// Throws c10::TypeError unless the image is [channels, height, width], not empty, on the CPU, of uint8 or a floating dtype.
/// `who`: named in the error, such as "Resize".
void check_image(const at::Tensor& image, const char* who);

/// Throws c10::ValueError for a side that does not fit into 31 bits, as sums and products of sides would overflow.
void check_sides(std::initializer_list<int64_t> sides, const char* who);

inline int64_t height_of(const at::Tensor& image) { return image.size(1); }
inline int64_t width_of(const at::Tensor& image) { return image.size(2); }
/// 255 for uint8, 1 for floating dtypes.
inline double max_value(const at::Tensor& image) { return image.scalar_type() == at::kByte ? 255.0 : 1.0; }
/// Rounds as Python does: halves to the even number.
int64_t python_round(double value);

}  // namespace cohort::data
