#include "cohort/extras/files/images/image_writer.h"

#include <gtest/gtest.h>

#include "tests/extras/files/images/pictures.h"

namespace cohort::files {
namespace {

TEST(ImageWriter, PngKeepsEveryPixel) {
  for (uint32_t channels = 1; channels <= 4; ++channels) {
    const ImageShape shape{17, 23, channels};
    const auto pixels = picture(shape);
    const auto planes = planes_of(pixels, channels);
    const auto png = encode_png({pixels.data(), shape, ImageLayout::kInterleaved});
    ASSERT_TRUE(png.ok()) << png.error().describe();
    EXPECT_EQ(*encode_png({planes.data(), shape, ImageLayout::kPlanes}), *png);
    const Decoded decoded = decode(*png, {.mode = ImageMode::kUnchanged});
    EXPECT_EQ(decoded.error, "");
    EXPECT_EQ(decoded.shape, shape);
    EXPECT_EQ(decoded.pixels, pixels);
  }
}

TEST(ImageWriter, JpegIsCloseToTheImage) {
  for (const uint32_t channels : {1U, 3U}) {
    const ImageShape shape{40, 61, channels};
    const auto pixels = picture(shape);
    const auto planes = planes_of(pixels, channels);
    for (const bool progressive : {false, true}) {
      const JpegOptions options{.quality = 95, .subsampling = JpegSubsampling::k444, .progressive = progressive};
      const auto jpeg = encode_jpeg({pixels.data(), shape, ImageLayout::kInterleaved}, options);
      ASSERT_TRUE(jpeg.ok()) << jpeg.error().describe();
      EXPECT_EQ(*encode_jpeg({planes.data(), shape, ImageLayout::kPlanes}, options), *jpeg);
      EXPECT_EQ(jpeg->find("\xFF\xC2") != std::string::npos, progressive);
      const Decoded decoded = decode(*jpeg, {.mode = ImageMode::kUnchanged});
      EXPECT_EQ(decoded.error, "");
      EXPECT_EQ(decoded.shape, shape);
      EXPECT_LE(largest_difference(decoded.pixels, pixels), 12);
    }
  }
}

TEST(ImageWriter, QualitySubsamplingAndCompressionHaveAnEffect) {
  const ImageShape shape{64, 64, 3};
  const auto pixels = picture(shape);
  const ImageView view{pixels.data(), shape, ImageLayout::kInterleaved};
  const auto size = [&](int quality, JpegSubsampling subsampling) {
    return encode_jpeg(view, {.quality = quality, .subsampling = subsampling})->size();
  };
  EXPECT_LT(size(20, JpegSubsampling::k420), size(90, JpegSubsampling::k420));
  EXPECT_LT(size(90, JpegSubsampling::k420), size(90, JpegSubsampling::k422));
  EXPECT_LT(size(90, JpegSubsampling::k422), size(90, JpegSubsampling::k444));
  EXPECT_LT(encode_png(view, 9)->size(), encode_png(view, 0)->size());
}

TEST(ImageWriter, Messages) {
  const uint8_t pixel[5] = {};
  const auto jpeg = [&](ImageShape shape, int quality = 75) {
    return encode_jpeg({pixel, shape}, {.quality = quality}).error().describe();
  };
  const auto png = [&](ImageShape shape, int level = 6) {
    return encode_png({pixel, shape}, level).error().describe();
  };
  EXPECT_EQ(jpeg({1, 70000, 1}), "cannot write an image of 1 x 70000 pixels as JPEG: each side must be 1 to 65500");
  EXPECT_EQ(png({0, 3, 1}), "cannot write an image of 0 x 3 pixels as PNG: each side must be 1 to 1000000");
  EXPECT_EQ(jpeg({1, 1, 2}), "cannot write an image of 2 channels as JPEG: it must have 1 or 3");
  EXPECT_EQ(png({1, 1, 5}), "cannot write an image of 5 channels as PNG: it must have 1 to 4");
  EXPECT_EQ(jpeg({1, 1, 1}, 0), "the quality of a JPEG must be 1 to 100, but is 0");
  EXPECT_EQ(png({1, 1, 1}, 10), "the compression level of a PNG must be 0 to 9, but is 10");
}

}  // namespace
}  // namespace cohort::files
