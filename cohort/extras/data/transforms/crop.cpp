#include "cohort/extras/data/transforms/crop.h"

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "cohort/extras/data/transforms/image.h"

namespace cohort::data {
namespace {

constexpr int kTries = 10;

void check_crop(ImageSize size, const char* who) {
  TORCH_CHECK_VALUE(size.height > 0 && size.width > 0, "[cohort] ", who, " needs a size that is positive, but got (",
                    size.height, ", ", size.width, ")");
  check_sides({size.height, size.width}, who);
}

at::Tensor part_of(const at::Tensor& image, int64_t top, int64_t left, ImageSize size) {
  return image.narrow(1, top, size.height).narrow(2, left, size.width);
}

std::array<int64_t, 4> four_sides(const std::vector<int64_t>& padding) {
  TORCH_CHECK_VALUE(padding.size() == 1 || padding.size() == 2 || padding.size() == 4,
                    "Padding must be an int or a 1, 2, or 4 element tuple, not a ", padding.size(), " element tuple");
  for (const int64_t side : padding) {
    TORCH_CHECK_VALUE(side >= 0, "[cohort] pad_image needs sides that are not negative, but got ", side);
    check_sides({side}, "pad_image");
  }
  if (padding.size() == 1) return {padding[0], padding[0], padding[0], padding[0]};
  if (padding.size() == 2) return {padding[0], padding[1], padding[0], padding[1]};
  return {padding[0], padding[1], padding[2], padding[3]};
}

// Returns the source pixel for each position of a padded row of `length`.
at::Tensor sources(int64_t length, int64_t before, int64_t after, PaddingMode mode) {
  const int64_t most = mode == PaddingMode::kEdge ? INT64_MAX : mode == PaddingMode::kReflect ? length - 1 : length;
  TORCH_CHECK_VALUE(std::max(before, after) <= most, "[cohort] pad_image cannot mirror ", std::max(before, after),
                    " pixels at the edge of an image of ", length);
  at::Tensor result = at::empty({before + length + after}, at::kLong);
  auto* source = result.mutable_data_ptr<int64_t>();
  const int64_t shift = mode == PaddingMode::kSymmetric ? 1 : 0;
  for (int64_t i = -before; i < length + after; ++i) {
    int64_t from = i;
    if (mode == PaddingMode::kEdge) {
      from = std::clamp<int64_t>(i, 0, length - 1);
    } else if (i < 0) {
      from = -i - shift;
    } else if (i >= length) {
      from = 2 * (length - 1) - i + shift;
    }
    *source++ = from;
  }
  return result;
}

}  // namespace

at::Tensor pad_image(const at::Tensor& image, const std::vector<int64_t>& padding, double fill, PaddingMode mode) {
  check_image(image, "pad_image");
  const auto [left, top, right, bottom] = four_sides(padding);
  if (mode == PaddingMode::kConstant) return at::constant_pad_nd(image, {left, right, top, bottom}, fill);
  const at::Tensor rows = at::index_select(image, 1, sources(height_of(image), top, bottom, mode));
  return at::index_select(rows, 2, sources(width_of(image), left, right, mode));
}

CenterCrop::CenterCrop(ImageSize size) : size_(size) { check_crop(size, "CenterCrop"); }

at::Tensor CenterCrop::operator()(const at::Tensor& image) const {
  check_image(image, "CenterCrop");
  at::Tensor whole = image;
  const int64_t more_width = std::max<int64_t>(size_.width - width_of(image), 0);
  const int64_t more_height = std::max<int64_t>(size_.height - height_of(image), 0);
  if (more_width > 0 || more_height > 0) {
    whole = pad_image(image, {more_width / 2, more_height / 2, (more_width + 1) / 2, (more_height + 1) / 2});
  }
  const auto [top, left] = place({height_of(image), width_of(image)});
  return part_of(whole, top + more_height / 2, left + more_width / 2, size_);
}

CropPlace CenterCrop::place(ImageSize image) const {
  const auto start = [](int64_t length, int64_t wanted) {
    // Pads a smaller image, rounding the first side down. Then there is nothing to choose.
    if (length <= wanted) return -((wanted - length) / 2);
    return python_round(static_cast<double>(length - wanted) / 2.0);
  };
  return {start(image.height, size_.height), start(image.width, size_.width)};
}

RandomCrop::RandomCrop(ImageSize size, RandomCropOptions options) : size_(size), options_(std::move(options)) {
  check_crop(size, "RandomCrop");
  if (!options_.padding.empty()) four_sides(options_.padding);
}

// Returns left, top, right and bottom, the sums of both kinds of padding.
std::array<int64_t, 4> RandomCrop::sides_for(ImageSize image) const {
  std::array<int64_t, 4> sides{};
  if (!options_.padding.empty()) sides = four_sides(options_.padding);
  const auto add_what_lacks = [&](size_t before, int64_t length, int64_t wanted) {
    const int64_t lack = wanted - (length + sides[before] + sides[before + 2]);
    if (!options_.pad_if_needed || lack <= 0) return;
    sides[before] += lack;
    sides[before + 2] += lack;
  };
  add_what_lacks(0, image.width, size_.width);
  add_what_lacks(1, image.height, size_.height);
  return sides;
}

CropPlace RandomCrop::choose_place(ImageSize image, SampleRandom& random) const {
  const auto [left, top, right, bottom] = sides_for(image);
  const int64_t height = image.height + top + bottom;
  const int64_t width = image.width + left + right;
  TORCH_CHECK_VALUE(size_.height <= height && size_.width <= width, "Required crop size (", size_.height, ", ",
                    size_.width, ") is larger than input image size (", height, ", ", width, ")");
  const int64_t from_top = random.integer(0, height - size_.height + 1);
  const int64_t from_left = random.integer(0, width - size_.width + 1);
  return {from_top - top, from_left - left};
}

std::optional<double> RandomCrop::padding_value() const {
  if (options_.padding.empty() && !options_.pad_if_needed) return std::nullopt;
  return options_.padding_mode == PaddingMode::kConstant ? options_.fill : NAN;
}

at::Tensor RandomCrop::operator()(const at::Tensor& image, SampleRandom& random) const {
  check_image(image, "RandomCrop");
  const ImageSize image_size(height_of(image), width_of(image));
  const auto [left, top, right, bottom] = sides_for(image_size);
  at::Tensor whole = image;
  const auto pad = [&](const std::vector<int64_t>& padding) {
    whole = pad_image(whole, padding, options_.fill, options_.padding_mode);
  };
  // In steps, as torchvision: pixels that were mirrored may be mirrored again.
  if (!options_.padding.empty()) pad(options_.padding);
  if (const int64_t more = (image_size.width + left + right - width_of(whole)) / 2; more > 0) pad({more, 0});
  if (const int64_t more = (image_size.height + top + bottom - height_of(whole)) / 2; more > 0) pad({0, more});
  const auto place = choose_place(image_size, random);
  return part_of(whole, place.top + top, place.left + left, size_);
}

RandomResizedCrop::RandomResizedCrop(ImageSize size, RandomResizedCropOptions options)
    : size_(size), options_(options) {
  check_crop(size, "RandomResizedCrop");
  TORCH_CHECK_VALUE(0 < options.scale[0] && options.scale[0] <= options.scale[1] && 0 < options.ratio[0] &&
                        options.ratio[0] <= options.ratio[1],
                    "Scale and ratio should be of kind (min, max)");
}

RandomResizedCrop::Part RandomResizedCrop::choose_part(ImageSize image, SampleRandom& random) const {
  const auto image_height = static_cast<double>(image.height);
  const auto image_width = static_cast<double>(image.width);
  for (int i = 0; i < kTries; ++i) {
    const double area = image_height * image_width * random.uniform(options_.scale[0], options_.scale[1]);
    const double ratio = std::exp(random.uniform(std::log(options_.ratio[0]), std::log(options_.ratio[1])));
    const int64_t width = python_round(std::sqrt(area * ratio));
    const int64_t height = python_round(std::sqrt(area / ratio));
    if (0 < width && width <= image.width && 0 < height && height <= image.height) {
      const int64_t top = random.integer(0, image.height - height + 1);
      return {top, random.integer(0, image.width - width + 1), height, width};
    }
  }
  // The middle of the image, as large as the bounds of the ratio allow.
  ImageSize part = image;
  const double ratio = image_width / image_height;
  if (ratio < options_.ratio[0]) part.height = python_round(image_width / options_.ratio[0]);
  if (ratio > options_.ratio[1]) part.width = python_round(image_height * options_.ratio[1]);
  part = {std::max<int64_t>(part.height, 1), std::max<int64_t>(part.width, 1)};
  return {(image.height - part.height) / 2, (image.width - part.width) / 2, part.height, part.width};
}

at::Tensor RandomResizedCrop::operator()(const at::Tensor& image, SampleRandom& random) const {
  check_image(image, "RandomResizedCrop");
  const Part part = choose_part({height_of(image), width_of(image)}, random);
  return resize_image(part_of(image, part.top, part.left, {part.height, part.width}), size_, options_.interpolation,
                      options_.antialias);
}

}  // namespace cohort::data
