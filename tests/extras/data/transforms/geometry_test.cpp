// Resize, crops, flips, rotations: against formulas and simple loops.
#include <ATen/ops/arange.h>
#include <ATen/ops/rot90.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>

#include "cohort/extras/data/transforms/affine.h"
#include "cohort/extras/data/transforms/crop.h"
#include "cohort/extras/data/transforms/flip.h"
#include "cohort/extras/data/transforms/resize.h"
#include "cohort/extras/data/transforms/rotation.h"
#include "tests/data/error_text.h"
#include "tests/extras/data/transforms/images.h"

namespace cohort::data {
namespace {

using test::error_text;
using test::largest_difference;
using test::noise;

double kernel_at(InterpolationMode mode, double x) {
  x = std::abs(x);
  if (mode == InterpolationMode::kBilinear) return std::max(0.0, 1 - x);
  constexpr double kA = -0.5;
  if (x < 1) return ((kA + 2) * x - (kA + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * kA : 0;
}

// Along the last dimension, by the definition: every pixel, weighted by a kernel as wide as a pixel of the result.
at::Tensor resize_rows(const at::Tensor& image, int64_t length, InterpolationMode mode) {
  const int64_t from = image.size(2);
  const double scale = static_cast<double>(from) / static_cast<double>(length);
  const double width = std::max(scale, 1.0);
  at::Tensor weights = at::zeros({from, length}, at::kDouble);
  for (int64_t to = 0; to < length; ++to) {
    for (int64_t i = 0; i < from; ++i) {
      const double x = (static_cast<double>(i) + 0.5 - (static_cast<double>(to) + 0.5) * scale) / width;
      weights[i][to] = kernel_at(mode, x);
    }
  }
  return image.matmul(weights / weights.sum(0, true));
}

// Between the two directions bytes are bytes.
at::Tensor resize_by_definition(const at::Tensor& image, ImageSize size, InterpolationMode mode, bool in_bytes = true) {
  at::Tensor rows = resize_rows(image.to(at::kDouble), size.width, mode);
  if (in_bytes && size.width > 1) rows = rows.round().clamp(0, 255);
  return resize_rows(rows.transpose(1, 2), size.height, mode).transpose(1, 2).clamp(0, 255).round();
}

TEST(Resize, IsTheDefinitionWithinOneOf255) {
  const at::Tensor image = noise(3, 37, 51);
  const at::Tensor channels_last = image.permute({1, 2, 0}).contiguous().permute({2, 0, 1});
  const at::Tensor part = noise(4, 40, 60).narrow(0, 1, 3).narrow(1, 2, 37).narrow(2, 5, 51);
  for (const auto mode : {InterpolationMode::kBilinear, InterpolationMode::kBicubic}) {
    for (const ImageSize size :
         {ImageSize(9, 14), ImageSize(80, 20), ImageSize(1, 1), ImageSize(60, 90), ImageSize(5, 1), ImageSize(1, 6),
          ImageSize(37, 2), ImageSize(8, 51), ImageSize(3, 3)}) {
      const Resize transform(size, {.interpolation = mode});
      for (const at::Tensor& bytes : {image, channels_last, part, image.narrow(0, 1, 1)}) {
        const at::Tensor result = transform(bytes);
        EXPECT_LE(largest_difference(result, resize_by_definition(bytes, size, mode)), 1)
            << size.height << " " << size.width;
        EXPECT_EQ(result.scalar_type(), at::kByte);
      }
      const at::Tensor floats = transform(image.to(at::kFloat)).clamp(0, 255).round();
      EXPECT_LE(largest_difference(floats, resize_by_definition(image, size, mode, false)), 1);
    }
  }
}

TEST(Resize, ShorterSideDecides) {
  EXPECT_EQ(Resize(256).output_size({500, 375}), ImageSize(341, 256));
  EXPECT_EQ(Resize(256).output_size({375, 500}), ImageSize(256, 341));
  EXPECT_EQ(Resize(10, {.max_size = 15}).output_size({10, 100}), ImageSize(1, 15));
  EXPECT_EQ(Resize(10, {.max_size = 101}).output_size({10, 100}), ImageSize(10, 100));
  EXPECT_EQ(Resize({3, 4}).output_size({10, 100}), ImageSize(3, 4));
  EXPECT_EQ(Resize(5)(noise(3, 10, 20)).sizes(), at::IntArrayRef({3, 5, 10}));
}

TEST(Resize, NearestTakesOnePixel) {
  const at::Tensor image = noise(1, 4, 6);
  const at::Tensor half = Resize({2, 3}, {.interpolation = InterpolationMode::kNearest})(image);
  EXPECT_TRUE(half.equal(image.slice(1, 0, 4, 2).slice(2, 0, 6, 2)));
}

TEST(Resize, MistakesMessages) {
  EXPECT_EQ(error_text<c10::ValueError>([] { Resize(10, {.max_size = 10}); }),
            "max_size = 10 must be strictly greater than the requested size for the smaller edge size = 10");
  EXPECT_EQ(error_text<c10::ValueError>([] {
              Resize({10, 10}, {.max_size = 20});
            }),
            "max_size should only be passed if size specifies the length of the smaller edge, i.e. size "
            "should be an "
            "int or a "
            "sequence of length 1 in torchscript mode.");
  EXPECT_EQ(error_text<c10::ValueError>([] { Resize(0); }),
            "[cohort] Resize needs sizes that are positive, but got (0, 0)");
  EXPECT_EQ(error_text<c10::ValueError>([] { Resize(INT64_MAX); }),
            "[cohort] Resize needs sides of at most 2147483647 pixels, but got 9223372036854775807");
  EXPECT_EQ(error_text<c10::TypeError>([] {
              Resize(2)(at::zeros({3, 4}, at::kLong));
            }),
            "[cohort] Resize needs an image [channels, height, width] of uint8 or a floating dtype on the CPU, but got "
            "Long [3, "
            "4] on cpu");
}

TEST(CenterCrop, TakesTheMiddleAndPadsWhatIsMissing) {
  const at::Tensor image = noise(3, 7, 10);
  EXPECT_TRUE(CenterCrop({4, 5})(image).equal(image.narrow(1, 2, 4).narrow(2, 2, 5)));  // 1.5 and 2.5 round to 2
  const at::Tensor padded = CenterCrop({10, 4})(image);
  EXPECT_TRUE(padded.narrow(1, 1, 7).equal(image.narrow(2, 3, 4)));
  EXPECT_EQ(padded.narrow(1, 0, 1).sum().item<int64_t>() + padded.narrow(1, 8, 2).sum().item<int64_t>(), 0);
}

TEST(RandomCrop, TakesEveryPlace) {
  const at::Tensor image = at::arange(12, at::kByte).view({1, 3, 4});
  std::vector<int> counts(12);
  for (int i = 0; i < 600; ++i) {
    SampleRandom random(0, 0, i);
    const at::Tensor part = RandomCrop({2, 2})(image, random);
    const auto first = part[0][0][0].item<int64_t>();
    ++counts.at(first);
    EXPECT_TRUE(part.equal(at::tensor({first, first + 1, first + 4, first + 5}, at::kByte).view({1, 2, 2})));
  }
  for (const int place : {0, 1, 2, 4, 5, 6}) EXPECT_GT(counts[place], 60);
}

TEST(RandomCrop, PadsInEachMode) {
  const at::Tensor row = at::tensor({1, 2, 3}, at::kByte).view({1, 1, 3});
  const auto padded = [&](PaddingMode mode) { return pad_image(row, {2, 0}, 9, mode).flatten(); };
  EXPECT_TRUE(padded(PaddingMode::kConstant).equal(at::tensor({9, 9, 1, 2, 3, 9, 9}, at::kByte)));
  EXPECT_TRUE(padded(PaddingMode::kEdge).equal(at::tensor({1, 1, 1, 2, 3, 3, 3}, at::kByte)));
  EXPECT_TRUE(padded(PaddingMode::kReflect).equal(at::tensor({3, 2, 1, 2, 3, 2, 1}, at::kByte)));
  EXPECT_TRUE(padded(PaddingMode::kSymmetric).equal(at::tensor({2, 1, 1, 2, 3, 3, 2}, at::kByte)));
  EXPECT_EQ(pad_image(row, {1, 2, 3, 4}).sizes(), at::IntArrayRef({1, 7, 7}));
  SampleRandom random(0, 0, 0);
  EXPECT_EQ(RandomCrop({4, 8}, {.pad_if_needed = true})(row, random).sizes(), at::IntArrayRef({1, 4, 8}));
  EXPECT_EQ(RandomCrop({3, 5}, {.padding = {1}})(row, random).sum().item<int64_t>(), 6);
}

TEST(RandomCrop, MistakesMessages) {
  SampleRandom random(0, 0, 0);
  EXPECT_EQ(error_text<c10::ValueError>([&] {
              RandomCrop({5, 6})(noise(3, 5, 5), random);
            }),
            "Required crop size (5, 6) is larger than input image size (5, 5)");
  EXPECT_EQ(error_text<c10::ValueError>([&] {
              RandomCrop(5, {.padding = {1, 2, 3}});
            }),
            "Padding must be an int or a 1, 2, or 4 element tuple, not a 3 element tuple");
  const auto too_many = "[cohort] RandomCrop needs sides of at most 2147483647 pixels, but got 9223372036854775807";
  EXPECT_EQ(error_text<c10::ValueError>([] { RandomCrop(INT64_MAX, {.pad_if_needed = true}); }), too_many);
  EXPECT_EQ(error_text<c10::ValueError>([] {
              RandomCrop(5, {.padding = {1, 2, INT64_MAX, 4}});
            }),
            "[cohort] pad_image needs sides of at most 2147483647 pixels, but got 9223372036854775807");
  EXPECT_EQ(error_text<c10::ValueError>([&] { pad_image(noise(1, 2, 2), {2}, 0, PaddingMode::kReflect); }),
            "[cohort] pad_image cannot mirror 2 pixels at the edge of an image of 2");
}

TEST(RandomResizedCrop, StaysInItsBounds) {
  const RandomResizedCrop crop(8);
  double least = 1;
  double most = 0;
  for (int i = 0; i < 500; ++i) {
    SampleRandom random(1, 2, i);
    const auto part = crop.choose_part({200, 300}, random);
    const double area = static_cast<double>(part.height * part.width) / 60000;
    const double ratio = static_cast<double>(part.width) / static_cast<double>(part.height);
    EXPECT_TRUE(area > 0.078 && area < 1.001 && ratio > 0.73 && ratio < 1.36) << area << " " << ratio;
    EXPECT_TRUE(part.top >= 0 && part.left >= 0 && part.top + part.height <= 200 && part.left + part.width <= 300);
    least = std::min(least, area);
    most = std::max(most, area);
  }
  EXPECT_LT(least, 0.12);
  EXPECT_GT(most, 0.8);
}

TEST(RandomResizedCrop, TakesTheMiddleWhenNothingFits) {
  SampleRandom random(0, 0, 0);
  const auto wide = RandomResizedCrop(8, {.scale = {1, 1}}).choose_part({10, 100}, random);
  EXPECT_TRUE(wide.top == 0 && wide.left == 43 && wide.height == 10 && wide.width == 13);
  const auto high = RandomResizedCrop(8, {.scale = {1, 1}}).choose_part({100, 10}, random);
  EXPECT_TRUE(high.top == 43 && high.left == 0 && high.height == 13 && high.width == 10);
}

TEST(RandomResizedCrop, ResizesItsPart) {
  const at::Tensor image = noise(3, 40, 60);
  SampleRandom random(5, 0, 0);
  SampleRandom same(5, 0, 0);
  const RandomResizedCrop crop({16, 12});
  const auto part = crop.choose_part({40, 60}, random);
  const at::Tensor expected = resize_by_definition(
      image.narrow(1, part.top, part.height).narrow(2, part.left, part.width), {16, 12}, InterpolationMode::kBilinear);
  EXPECT_LE(largest_difference(crop(image, same), expected), 1);
}

TEST(RandomFlip, FlipsAsOftenAsItShould) {
  const at::Tensor image = noise(3, 4, 5);
  int flips = 0;
  for (int i = 0; i < 400; ++i) {
    SampleRandom random(0, 0, i);
    const at::Tensor result = RandomHorizontalFlip(0.25)(image, random);
    for (int64_t column = 0; column < 5; ++column) {
      EXPECT_TRUE(result.equal(image) || result.select(2, column).equal(image.select(2, 4 - column)));
    }
    flips += result.equal(image) ? 0 : 1;
  }
  EXPECT_NEAR(flips, 100, 35);
  SampleRandom random(0, 0, 0);
  EXPECT_TRUE(RandomVerticalFlip(1)(image, random).select(1, 0).equal(image.select(1, 3)));
}

TEST(RandomRotation, QuarterTurnsAreRot90) {
  for (const auto mode : {InterpolationMode::kNearest, InterpolationMode::kBilinear}) {
    const at::Tensor square = noise(3, 7, 7);
    EXPECT_LE(largest_difference(rotate_image(square, 90, {.interpolation = mode}), at::rot90(square, 1, {1, 2})), 1);
    EXPECT_LE(largest_difference(rotate_image(square, 180, {.interpolation = mode}), at::rot90(square, 2, {1, 2})), 1);
    const at::Tensor wide = noise(3, 4, 8);
    const at::Tensor turned = rotate_image(wide, 90, {.interpolation = mode, .expand = true});
    EXPECT_LE(largest_difference(turned, at::rot90(wide, 1, {1, 2})), 1);
  }
}

TEST(RandomRotation, FillsAndExpands) {
  const at::Tensor image = noise(1, 10, 10).bitwise_or(1);
  const at::Tensor turned = rotate_image(image, 45, {.expand = true, .fill = 0});
  EXPECT_EQ(turned.sizes(), at::IntArrayRef({1, 16, 16}));  // from -2.07 to 12.07
  EXPECT_EQ(rotate_image(image, 45, {.fill = 200})[0][0][0].item<int64_t>(), 200);
  EXPECT_NE(rotate_image(image, 45)[0][5][5].item<int64_t>(), 0);
  // Around the pixel at the upper left, that pixel stays.
  EXPECT_EQ(rotate_image(image, 30, {.center = std::array{0.5, 0.5}})[0][0][0].item<int64_t>(),
            image[0][0][0].item<int64_t>());
  SampleRandom random(0, 0, 0);
  EXPECT_TRUE(RandomRotation(0)(image, random).equal(image));
  EXPECT_EQ(error_text<c10::ValueError>([] { RandomRotation(-1); }),
            "If degrees is a single number, it must be positive.");
}

}  // namespace
}  // namespace cohort::data
