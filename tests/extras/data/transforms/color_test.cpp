// Colors: against torchvision's formulas, pixel by pixel.
#include "cohort/extras/data/transforms/color.h"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "cohort/extras/data/augmentation/color_jitter.h"
#include "cohort/extras/data/augmentation/rand_augment.h"
#include "cohort/extras/data/augmentation/random_erasing.h"
#include "cohort/extras/data/transforms/to_tensor.h"
#include "tests/data/error_text.h"
#include "tests/extras/data/transforms/images.h"

namespace cohort::data {
namespace {

using test::error_text;
using test::largest_difference;
using test::noise;

at::Tensor pixel(int red, int green, int blue) { return at::tensor({red, green, blue}, at::kByte).view({3, 1, 1}); }

TEST(ToTensor, DividesBytesBy255) {
  const at::Tensor image = noise(3, 4, 5).permute({0, 2, 1});
  const at::Tensor result = ToTensor()(image);
  EXPECT_TRUE(result.equal(image.to(at::kFloat) / 255) && result.is_contiguous());
  EXPECT_TRUE(ToTensor()(result).is_same(result));
}

TEST(Normalize, OfEachChannel) {
  const at::Tensor image = ToTensor()(noise(3, 4, 5));
  const at::Tensor result = Normalize({0.1, 0.2, 0.3}, {2, 4, 8})(image);
  for (int64_t i = 0; i < 3; ++i) {
    const double mean = 0.1 * static_cast<double>(i + 1);
    EXPECT_TRUE(result[i].allclose((image[i] - mean) / (2 << i), 0, 1e-6));
  }
  EXPECT_EQ(error_text<c10::ValueError>([] { Normalize({0.5}, {0.0}); }),
            "std evaluated to zero after conversion, leading to division by zero.");
  EXPECT_EQ(error_text<c10::ValueError>([&] {
              Normalize({0.5, 0.5}, {1})(image);
            }),
            "[cohort] Normalize has 2 values of mean for an image of 3 channels");
  EXPECT_EQ(error_text<c10::TypeError>([] { Normalize({0.5}, {1})(noise(3, 2, 2)); }),
            "Input tensor should be a float tensor. Got Byte.");
}

TEST(Color, BlendsWithBlackAndGray) {
  EXPECT_TRUE(adjust_brightness(pixel(10, 101, 200), 1.5).equal(pixel(15, 151, 255)));
  EXPECT_TRUE(adjust_brightness(pixel(10, 101, 200), 0.5).equal(pixel(5, 50, 100)));
  // Gray of (10, 101, 200) is int(85.076) = 85.
  EXPECT_TRUE(adjust_saturation(pixel(10, 101, 200), 0).equal(pixel(85, 85, 85)));
  EXPECT_TRUE(adjust_saturation(pixel(10, 101, 200), 2).equal(pixel(0, 117, 255)));
  EXPECT_TRUE(adjust_contrast(pixel(10, 101, 200), 0.5).equal(pixel(47, 93, 142)));
  const at::Tensor gray = noise(1, 5, 5);
  EXPECT_TRUE(adjust_saturation(gray, 0.3).equal(gray));
  EXPECT_TRUE(
      adjust_contrast(gray, 0).eq(static_cast<int64_t>(gray.to(at::kFloat).mean().item<double>())).all().item<bool>());
}

TEST(Color, TurnsHue) {
  EXPECT_TRUE(adjust_hue(pixel(255, 0, 0), 1.0 / 3).equal(pixel(0, 255, 0)));
  EXPECT_TRUE(adjust_hue(pixel(255, 0, 0), -1.0 / 3).equal(pixel(0, 0, 255)));
  EXPECT_LE(largest_difference(adjust_hue(pixel(40, 200, 100), 0.5), pixel(200, 40, 140)), 1);
  EXPECT_TRUE(adjust_hue(pixel(77, 77, 77), 0.2).equal(pixel(77, 77, 77)));
  const at::Tensor image = noise(3, 16, 16);
  EXPECT_LE(largest_difference(adjust_hue(image, 0), image), 1);
  EXPECT_LE(largest_difference(adjust_hue(adjust_hue(image, 0.2), -0.2), image), 4);
}

TEST(Color, SharpensTheInsideOnly) {
  at::Tensor image = at::full({1, 4, 4}, 100, at::kByte);
  image[0][1][1] = 126;
  const at::Tensor blurred = adjust_sharpness(image, 0);
  EXPECT_EQ(blurred[0][1][1].item<int64_t>(), 110);  // 100 + 26 * 5 / 13
  EXPECT_EQ(blurred[0][2][2].item<int64_t>(), 102);
  EXPECT_EQ(blurred[0][0][0].item<int64_t>(), 100);
  EXPECT_EQ(adjust_sharpness(image, 2)[0][1][1].item<int64_t>(), 142);
}

TEST(Color, Tables) {
  EXPECT_TRUE(posterize(pixel(255, 129, 63), 2).equal(pixel(192, 128, 0)));
  EXPECT_TRUE(posterize(pixel(255, 129, 63), 8).equal(pixel(255, 129, 63)));
  EXPECT_TRUE(solarize(pixel(255, 128, 127), 128).equal(pixel(0, 127, 127)));
  const at::Tensor row = at::tensor({50, 60, 100}, at::kByte).view({1, 1, 3});
  EXPECT_TRUE(autocontrast(row).equal(at::tensor({0, 51, 255}, at::kByte).view({1, 1, 3})));
  EXPECT_TRUE(autocontrast(pixel(7, 8, 9)).equal(pixel(7, 8, 9)));
}

// By the definition of torchvision's _scale_channel, with a sort instead of a histogram.
TEST(Color, EqualizeSpreadsValues) {
  const at::Tensor image = noise(2, 40, 40).div(3, "floor").to(at::kByte);
  const at::Tensor result = equalize(image);
  for (int64_t channel = 0; channel < 2; ++channel) {
    const at::Tensor values = image[channel].flatten().to(at::kLong);
    const auto last = values.eq(values.max()).sum().item<int64_t>();
    const int64_t step = (1600 - last) / 255;
    ASSERT_GT(step, 0);
    for (int64_t i = 0; i < 1600; i += 7) {
      const auto below = values.lt(values[i]).sum().item<int64_t>();
      EXPECT_EQ(result[channel].flatten()[i].item<int64_t>(), std::min<int64_t>((below + step / 2) / step, 255));
    }
  }
}

TEST(ColorJitter, DrawsEachFactorAndTheOrder) {
  const at::Tensor image = at::full({3, 2, 2}, 100, at::kByte);
  int64_t least = 255;
  int64_t most = 0;
  for (int i = 0; i < 200; ++i) {
    SampleRandom random(0, 0, i);
    const auto value = ColorJitter({.brightness = 0.5})(image, random).max().item<int64_t>();
    least = std::min(least, value);
    most = std::max(most, value);
  }
  EXPECT_TRUE(least >= 50 && least < 60 && most > 140 && most <= 150) << least << " " << most;
  SampleRandom random(0, 0, 0);
  EXPECT_TRUE(ColorJitter({})(image, random).is_same(image));
  EXPECT_EQ(ColorJitter({.brightness = {0.25, 0.25}})(image, random).max().item<int64_t>(), 25);
  const at::Tensor colors = noise(3, 8, 8);
  const ColorJitter jitter(
      {.brightness = {1.9, 1.9}, .contrast = {0.2, 0.2}, .saturation = {0.1, 0.1}, .hue = {0.3, 0.3}});
  std::vector<at::Tensor> seen;
  for (int i = 0; i < 100; ++i) {
    SampleRandom order(0, 0, i);
    const at::Tensor result = jitter(colors, order);
    if (std::none_of(seen.begin(), seen.end(), [&](const at::Tensor& other) { return other.equal(result); }))
      seen.push_back(result);
  }
  EXPECT_GT(seen.size(), 10u);
}

TEST(ColorJitter, MistakesMessages) {
  EXPECT_EQ(error_text<c10::ValueError>([] { ColorJitter({.contrast = -1.0}); }),
            "If contrast is a single number, it must be non negative.");
  EXPECT_EQ(error_text<c10::ValueError>([] { ColorJitter({.hue = 0.6}); }),
            "hue values should be between (-0.5, 0.5), but got (-0.6, 0.6).");
  SampleRandom random(0, 0, 0);
  EXPECT_EQ(error_text<c10::TypeError>([&] { ColorJitter({.hue = 0.1})(noise(2, 2, 2), random); }),
            "Input image tensor permitted channel values are [1, 3], but found 2");
}

TEST(RandomErasing, ErasesARectangleWithinItsBounds) {
  const at::Tensor image = at::ones({3, 40, 50});
  int erased = 0;
  for (int i = 0; i < 300; ++i) {
    SampleRandom random(0, 0, i);
    const at::Tensor result = RandomErasing({.value = {2, 3, 4}})(image, random);
    if (result.equal(image)) continue;
    ++erased;
    const at::Tensor mask = result[0].eq(2);
    EXPECT_TRUE(mask.equal(result[1].eq(3)) && mask.equal(result[2].eq(4)));
    const auto height = mask.any(1).sum().item<int64_t>();
    const auto width = mask.any(0).sum().item<int64_t>();
    EXPECT_EQ(mask.sum().item<int64_t>(), height * width);
    const double share = static_cast<double>(height * width) / 2000;
    EXPECT_TRUE(share > 0.01 && share < 0.35) << share;
  }
  EXPECT_NEAR(erased, 150, 40);
  EXPECT_TRUE(image.eq(1).all().item<bool>());
  SampleRandom random(0, 0, 1);
  EXPECT_GT(RandomErasing({.p = 1, .scale = {0.3, 0.3}, .value = {}})(image, random).std().item<double>(), 0.3);
  EXPECT_EQ(error_text<c10::ValueError>([] { RandomErasing({.p = 2}); }),
            "Random erasing probability should be between 0 and 1");
  EXPECT_EQ(error_text<c10::ValueError>([&] {
              RandomErasing({.value = {1, 2}})(image, random);
            }),
            "If value is a sequence, it should have either a single value or 3 (number of input channels)");
}

TEST(RandAugment, StrengthsAreTorchvisions) {
  const RandAugment augment({.magnitude = 15});
  const auto strength = [&](Augmentation change) { return augment.strength(change, {100, 331}); };
  EXPECT_DOUBLE_EQ(strength(Augmentation::kShearY), 0.15);
  EXPECT_DOUBLE_EQ(strength(Augmentation::kTranslateX), 75);
  EXPECT_DOUBLE_EQ(strength(Augmentation::kTranslateY), 15000.0 / 331 / 2);
  EXPECT_DOUBLE_EQ(strength(Augmentation::kRotate), 15);
  EXPECT_DOUBLE_EQ(strength(Augmentation::kSharpness), 0.45);
  EXPECT_DOUBLE_EQ(strength(Augmentation::kPosterize), 6);
  EXPECT_DOUBLE_EQ(strength(Augmentation::kSolarize), 127.5);
  EXPECT_DOUBLE_EQ(strength(Augmentation::kEqualize), 0);
}

TEST(RandAugment, MovesPixels) {
  const RandAugment augment({.fill = 9});
  const at::Tensor image = noise(3, 8, 8);
  const at::Tensor right = augment.apply(Augmentation::kTranslateX, 2.9, image);
  EXPECT_TRUE(right.narrow(2, 2, 6).equal(image.narrow(2, 0, 6)) && right.narrow(2, 0, 2).eq(9).all().item<bool>());
  const at::Tensor up = augment.apply(Augmentation::kTranslateY, -3.0, image);
  EXPECT_TRUE(up.narrow(1, 0, 5).equal(image.narrow(1, 3, 5)) && up.narrow(1, 5, 3).eq(9).all().item<bool>());
  const at::Tensor turned = augment.apply(Augmentation::kRotate, 90, image);
  EXPECT_TRUE(turned.equal(image.transpose(1, 2).flip(1)));
  // A shear of 1 moves row y by y + 1/2 pixels, to the left as torchvision does.
  const at::Tensor sheared = augment.apply(Augmentation::kShearX, 0.999, image);
  EXPECT_TRUE(sheared.select(1, 0).eq(image.select(1, 0)).any().item<bool>());
  EXPECT_FALSE(sheared.select(1, 5).equal(image.select(1, 5)));
}

TEST(RandAugment, DrawsEveryChange) {
  const at::Tensor image = noise(3, 12, 12);
  std::vector<at::Tensor> seen;
  for (int i = 0; i < 400; ++i) {
    SampleRandom random(0, 0, i);
    const at::Tensor result = RandAugment({.num_ops = 1})(image, random);
    EXPECT_EQ(result.sizes(), image.sizes());
    if (std::none_of(seen.begin(), seen.end(), [&](const at::Tensor& other) { return other.equal(result); }))
      seen.push_back(result);
  }
  EXPECT_GE(seen.size(), 20u);  // 14, of which nine go both ways; noise has its whole range of contrast already
  SampleRandom random(0, 0, 0);
  EXPECT_EQ(error_text<c10::TypeError>([&] {
              RandAugment()(at::zeros({3, 2, 2}), random);
            }),
            "[cohort] RandAugment needs a uint8 image, but got Float");
  EXPECT_EQ(error_text<c10::ValueError>([] { RandAugment({.magnitude = 31}); }),
            "[cohort] RandAugment needs 0 <= magnitude < num_magnitude_bins, but got 31 and 31");
}

}  // namespace
}  // namespace cohort::data
