#include "cohort/extras/data/transforms/color.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/where.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "cohort/extras/data/transforms/image.h"

namespace cohort::data {
namespace {

constexpr int kValues = 256;

at::ScalarType working_type(const at::Tensor& image) {
  return image.is_floating_point() ? image.scalar_type() : at::kFloat;
}

at::Tensor blend(const at::Tensor& image, const at::Tensor& other, double factor) {
  return (image.to(working_type(image)) * factor + other.to(working_type(image)) * (1.0 - factor))
      .clamp_(0, max_value(image))
      .to(image.scalar_type());
}

at::Tensor gray_of(const at::Tensor& image) {
  const at::Tensor pixels = image.to(working_type(image));
  return (pixels[0] * 0.2989 + pixels[1] * 0.587 + pixels[2] * 0.114).to(image.scalar_type()).unsqueeze(0);
}

struct Pixel {
  float red;
  float green;
  float blue;
};

Pixel from_hsv(float hue, float saturation, float value) {
  const float sector = std::floor(hue * 6.0F);
  const float f = hue * 6.0F - sector;
  const float p = std::clamp(value * (1.0F - saturation), 0.0F, 1.0F);
  const float q = std::clamp(value * (1.0F - saturation * f), 0.0F, 1.0F);
  const float t = std::clamp(value * (1.0F - saturation * (1.0F - f)), 0.0F, 1.0F);
  switch (static_cast<int>(sector) % 6) {
    case 0:
      return {value, t, p};
    case 1:
      return {q, value, p};
    case 2:
      return {p, value, t};
    case 3:
      return {p, q, value};
    case 4:
      return {t, p, value};
    default:
      return {value, p, q};
  }
}

Pixel turn_hue(Pixel pixel, float turn) {
  const auto [red, green, blue] = pixel;
  const float most = std::max({red, green, blue});
  const float range = most - std::min({red, green, blue});
  const bool is_gray = range == 0;
  const float saturation = is_gray ? 0.0F : range / most;
  const float divisor = is_gray ? 1.0F : range;
  const float r = (most - red) / divisor;
  const float g = (most - green) / divisor;
  const float b = (most - blue) / divisor;
  float hue = 4.0F + g - r;
  if (most == red) {
    hue = b - g;
  } else if (most == green) {
    hue = 2.0F + r - b;
  }
  hue = std::fmod(hue / 6.0F + 1.0F, 1.0F) + turn;
  return from_hsv(hue - std::floor(hue), saturation, most);
}

at::Tensor blurred(const at::Tensor& image) {
  const at::ScalarType dtype = working_type(image);
  at::Tensor kernel = at::ones({1, 1, 3, 3}, dtype);
  kernel[0][0][1][1] = 5.0;
  kernel /= kernel.sum();
  at::Tensor inside = at::conv2d(image.to(dtype).unsqueeze(1), kernel).squeeze(1);
  if (!image.is_floating_point()) inside.round_();
  at::Tensor result = image.clone();
  result.narrow(1, 1, height_of(image) - 2).narrow(2, 1, width_of(image) - 2).copy_(inside);
  return result;
}

void check_bytes(const at::Tensor& image) {
  TORCH_CHECK_TYPE(image.scalar_type() == at::kByte, "Only torch.uint8 image tensors are supported, but found ",
                   image.scalar_type());
}

std::array<uint8_t, kValues> equalizing_table(const uint8_t* values, int64_t count) {
  std::array<int64_t, kValues> histogram{};
  for (int64_t i = 0; i < count; ++i) ++histogram[values[i]];
  const int64_t of_last = *std::find_if(histogram.rbegin(), histogram.rend(), [](int64_t n) { return n != 0; });
  const int64_t step = (count - of_last) / (kValues - 1);
  std::array<uint8_t, kValues> table{};
  int64_t sum = step / 2;
  for (int value = 0; value < kValues; ++value) {
    table[value] = static_cast<uint8_t>(step == 0 ? value : std::min<int64_t>(sum / step, kValues - 1));
    sum += histogram[value];
  }
  return table;
}

}  // namespace

void check_channels(const at::Tensor& image) {
  TORCH_CHECK_TYPE(image.size(0) == 1 || image.size(0) == 3,
                   "Input image tensor permitted channel values are [1, 3], but found ", image.size(0));
}

at::Tensor adjust_brightness(const at::Tensor& image, double factor) {
  return blend(image, image.new_zeros({}), factor);
}

at::Tensor adjust_contrast(const at::Tensor& image, double factor) {
  const at::Tensor gray = image.size(0) == 3 ? gray_of(image) : image;
  return blend(image, gray.to(working_type(image)).mean(), factor);
}

at::Tensor adjust_saturation(const at::Tensor& image, double factor) {
  return image.size(0) == 1 ? image : blend(image, gray_of(image), factor);
}

at::Tensor adjust_sharpness(const at::Tensor& image, double factor) {
  if (height_of(image) <= 2 || width_of(image) <= 2) return image;
  return blend(image, blurred(image), factor);
}

at::Tensor adjust_hue(const at::Tensor& image, double factor) {
  if (image.size(0) == 1) return image;
  const bool is_bytes = !image.is_floating_point();
  const at::Tensor pixels = (is_bytes ? image.to(at::kFloat).div_(255.0) : image.to(at::kFloat)).contiguous();
  at::Tensor result = at::empty_like(pixels);
  const int64_t count = height_of(image) * width_of(image);
  const auto* from = pixels.const_data_ptr<float>();
  auto* to = result.mutable_data_ptr<float>();
  for (int64_t i = 0; i < count; ++i) {
    const Pixel pixel = turn_hue({from[i], from[i + count], from[i + 2 * count]}, static_cast<float>(factor));
    to[i] = pixel.red;
    to[i + count] = pixel.green;
    to[i + 2 * count] = pixel.blue;
  }
  // As convert_image_dtype: every byte represents an equal part of 0 .. 1.
  return is_bytes ? result.mul_(256.0 - 1e-3).to(at::kByte) : result.to(image.scalar_type());
}

at::Tensor posterize(const at::Tensor& image, int bits) {
  check_bytes(image);
  return image.bitwise_and(static_cast<int64_t>(0xFF << (8 - bits) & 0xFF));
}

at::Tensor solarize(const at::Tensor& image, double threshold) {
  return at::where(image.ge(threshold), (max_value(image) - image).to(image.scalar_type()), image);
}

at::Tensor autocontrast(const at::Tensor& image) {
  const double bound = max_value(image);
  const at::Tensor pixels = image.to(working_type(image));
  const at::Tensor least = pixels.amin({1, 2}, /*keepdim=*/true);
  const at::Tensor range = pixels.amax({1, 2}, /*keepdim=*/true) - least;
  const at::Tensor scale = at::where(range.eq(0), 1.0, bound / range);
  const at::Tensor from = at::where(range.eq(0), 0.0, least);
  return ((pixels - from) * scale).clamp_(0, bound).to(image.scalar_type());
}

at::Tensor equalize(const at::Tensor& image) {
  check_bytes(image);
  at::Tensor result = image.clone(at::MemoryFormat::Contiguous);
  const int64_t count = height_of(image) * width_of(image);
  for (int64_t channel = 0; channel < image.size(0); ++channel) {
    auto* values = result.mutable_data_ptr<uint8_t>() + channel * count;
    const auto table = equalizing_table(values, count);
    std::transform(values, values + count, values, [&](uint8_t value) { return table[value]; });
  }
  return result;
}

}  // namespace cohort::data
