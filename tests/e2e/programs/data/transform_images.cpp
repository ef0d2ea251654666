// Answers each line of standard input, `OP KIND DTYPE CHANNELS HEIGHT WIDTH ARGUMENTS...`, with the transformed image: its sizes,
// then its values. KIND says which image is drawn: texture or gradient (transforms_test.py draws the same); DTYPE is uint8 or
// float.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <functional>
#include <iostream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>

#include "cohort/extras/data/augmentation/rand_augment.h"
#include "cohort/extras/data/transforms/color.h"
#include "cohort/extras/data/transforms/crop.h"
#include "cohort/extras/data/transforms/resize.h"
#include "cohort/extras/data/transforms/rotation.h"

namespace {

using namespace cohort::data;

at::Tensor draw(const std::string& kind, int64_t channels, int64_t height, int64_t width) {
  at::Tensor image = at::empty({channels, height, width}, at::kByte);
  auto* value = image.mutable_data_ptr<uint8_t>();
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t y = 0; y < height; ++y) {
      for (int64_t x = 0; x < width; ++x) {
        const int64_t texture = x * 37 + y * 101 + c * 59 + x * y * 7 + (x ^ y) * 13;
        const int64_t gradient = 20 + c * 30 + (x * 120) / width + (y * 60) / height;
        *value++ = static_cast<uint8_t>((kind == "texture" ? texture : gradient) & 255);
      }
    }
  }
  return image;
}

struct Arguments {
  std::istringstream words;
  template <typename T>
  T next() {
    T value{};
    if (!(words >> value)) throw std::runtime_error("an argument is missing: " + words.str());
    return value;
  }
  double number() { return next<double>(); }
  int64_t integer() { return next<int64_t>(); }
};

InterpolationMode mode_of(const std::string& name) {
  if (name == "nearest") return InterpolationMode::kNearest;
  return name == "bilinear" ? InterpolationMode::kBilinear : InterpolationMode::kBicubic;
}

at::Tensor rotate(const at::Tensor& image, Arguments& arguments) {
  const double angle = arguments.number();
  RotationOptions options{.interpolation = mode_of(arguments.next<std::string>()), .expand = arguments.integer() != 0};
  options.fill = arguments.number();
  double x = 0;
  double y = 0;
  if (arguments.words >> x >> y) options.center = {x, y};
  return rotate_image(image, angle, options);
}

at::Tensor resize(const at::Tensor& image, Arguments& arguments) {
  const auto mode = mode_of(arguments.next<std::string>());
  const bool antialias = arguments.integer() != 0;
  const int64_t height = arguments.integer();
  const int64_t width = arguments.integer();
  if (width > 0) return resize_image(image, {height, width}, mode, antialias);
  ResizeOptions options{.interpolation = mode, .antialias = antialias};
  if (const int64_t longest = arguments.integer()) options.max_size = longest;
  return Resize(height, options)(image);
}

at::Tensor crop(const at::Tensor& image, Arguments& arguments) {
  const int64_t height = arguments.integer();
  return CenterCrop({height, arguments.integer()})(image);
}

at::Tensor pad(const at::Tensor& image, Arguments& arguments) {
  const std::map<std::string, PaddingMode> modes = {{"constant", PaddingMode::kConstant},
                                                    {"edge", PaddingMode::kEdge},
                                                    {"reflect", PaddingMode::kReflect},
                                                    {"symmetric", PaddingMode::kSymmetric}};
  const auto mode = modes.at(arguments.next<std::string>());
  const double fill = arguments.number();
  std::vector<int64_t> padding;
  for (int64_t value = 0; arguments.words >> value;) padding.push_back(value);
  return pad_image(image, padding, fill, mode);
}

// CHANGE STRENGTH MODE FILL (-1: none)
at::Tensor augment(const at::Tensor& image, Arguments& arguments) {
  const auto change = static_cast<Augmentation>(arguments.integer());
  const double strength = arguments.number();
  RandAugmentOptions options{.interpolation = mode_of(arguments.next<std::string>())};
  const double fill = arguments.number();
  if (fill >= 0) options.fill = fill;
  return RandAugment(options).apply(change, strength, image);
}

// MAGNITUDE: the strengths of all changes
at::Tensor strengths(const at::Tensor& image, Arguments& arguments) {
  const RandAugment augment({.magnitude = arguments.integer()});
  std::vector<double> values;
  for (int change = 0; change < kNumAugmentations; ++change) {
    values.push_back(augment.strength(static_cast<Augmentation>(change), {image.size(1), image.size(2)}));
  }
  return at::tensor(values, at::kDouble);
}

using Op = std::function<at::Tensor(const at::Tensor&, Arguments&)>;

Op of_factor(at::Tensor (*function)(const at::Tensor&, double)) {
  return [function](const at::Tensor& image, Arguments& arguments) { return function(image, arguments.number()); };
}

const std::map<std::string, Op>& ops() {
  static const std::map<std::string, Op> all = {
      {"brightness", of_factor(adjust_brightness)},
      {"contrast", of_factor(adjust_contrast)},
      {"saturation", of_factor(adjust_saturation)},
      {"sharpness", of_factor(adjust_sharpness)},
      {"hue", of_factor(adjust_hue)},
      {"solarize", of_factor(solarize)},
      {"posterize",
       [](const at::Tensor& image, Arguments& arguments) { return posterize(image, arguments.next<int>()); }},
      {"autocontrast", [](const at::Tensor& image, Arguments&) { return autocontrast(image); }},
      {"equalize", [](const at::Tensor& image, Arguments&) { return equalize(image); }},
      {"center_crop", crop},
      {"rotate", rotate},
      {"resize", resize},
      {"pad", pad},
      {"strengths", strengths},
      {"augment", augment}};
  return all;
}

void answer(const std::string& line) {
  Arguments arguments{std::istringstream(line)};
  const auto& op = ops().at(arguments.next<std::string>());
  const auto kind = arguments.next<std::string>();
  const auto dtype = arguments.next<std::string>();
  const int64_t channels = arguments.integer();
  const int64_t height = arguments.integer();
  at::Tensor image = draw(kind, channels, height, arguments.integer());
  if (dtype == "float") image = image.to(at::kFloat).div(255);
  const at::Tensor result = op(image, arguments).contiguous();
  for (const int64_t size : result.sizes()) std::cout << size << ' ';
  std::cout << '|';
  const at::Tensor values = result.to(at::kDouble).flatten();
  for (int64_t i = 0; i < values.numel(); ++i) std::cout << values.const_data_ptr<double>()[i] << ' ';
  std::cout << '\n';
}

}  // namespace

int main() {
  std::cout.precision(9);
  for (std::string line; std::getline(std::cin, line);) answer(line);
  return 0;
}
