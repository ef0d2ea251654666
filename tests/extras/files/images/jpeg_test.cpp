#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "cohort/extras/files/images/exif.h"
#include "tests/extras/files/images/pictures.h"

namespace cohort::files {
namespace {

std::string jpeg_of(const ImageShape& shape, const JpegOptions& options = {}) {
  const auto pixels = picture(shape);
  return *encode_jpeg({pixels.data(), shape, ImageLayout::kInterleaved}, options);
}

std::string tiff(bool is_little_endian, int orientation) {
  const auto value = static_cast<char>(orientation);
  if (is_little_endian) {
    return std::string("II\x2A\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0", 18) + value + std::string(7, '\0');
  }
  return std::string("MM\0\x2A\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0", 19) + value + std::string(6, '\0');
}

std::string with_exif(const std::string& jpeg, const std::string& data) {
  const std::string body = std::string("Exif\0\0", 6) + data;
  return jpeg.substr(0, 2) + "\xFF\xE1" + '\0' + static_cast<char>(body.size() + 2) + body + jpeg.substr(2);
}

TEST(Jpeg, PlanesAreThePixelsInAnotherOrder) {
  const std::string jpeg = jpeg_of({33, 50, 3});
  const Decoded interleaved = decode(jpeg);
  const Decoded planes = decode(jpeg, {}, ImageLayout::kPlanes);
  EXPECT_EQ(planes.error, "");
  EXPECT_EQ(planes.shape, (ImageShape{33, 50, 3}));
  EXPECT_EQ(planes.pixels, planes_of(interleaved.pixels, 3));
  EXPECT_LE(largest_difference(interleaved.pixels, picture({33, 50, 3})), 40);
}

TEST(Jpeg, Modes) {
  const ImageShape shape{19, 21, 3};
  const std::string colors = jpeg_of(shape);
  const Decoded rgb = decode(colors);
  const Decoded gray = decode(colors, {.mode = ImageMode::kGray});
  const Decoded rgba = decode(colors, {.mode = ImageMode::kRgbAlpha});
  const Decoded gray_alpha = decode(colors, {.mode = ImageMode::kGrayAlpha});
  EXPECT_EQ(decode(colors, {.mode = ImageMode::kUnchanged}).pixels, rgb.pixels);
  ASSERT_EQ(gray.pixels.size(), size_t{19 * 21});
  ASSERT_EQ(rgba.pixels.size(), gray.pixels.size() * 4);
  ASSERT_EQ(gray_alpha.pixels.size(), gray.pixels.size() * 2);
  for (size_t i = 0; i < gray.pixels.size(); ++i) {
    const uint8_t* pixel = &rgb.pixels[3 * i];
    EXPECT_NEAR(gray.pixels[i], 0.299 * pixel[0] + 0.587 * pixel[1] + 0.114 * pixel[2], 3);
    EXPECT_EQ(std::memcmp(pixel, &rgba.pixels[4 * i], 3), 0);
    EXPECT_EQ(rgba.pixels[4 * i + 3], 255);
    EXPECT_EQ(gray_alpha.pixels[2 * i], gray.pixels[i]);
    EXPECT_EQ(gray_alpha.pixels[2 * i + 1], 255);
  }
  const std::string file_of_gray = jpeg_of({19, 21, 1});
  const Decoded one = decode(file_of_gray, {.mode = ImageMode::kUnchanged}, ImageLayout::kPlanes);
  const Decoded three = decode(file_of_gray, {}, ImageLayout::kPlanes);
  EXPECT_EQ(one.shape.channels, 1U);
  auto thrice = one.pixels;
  for (int i = 0; i < 2; ++i) thrice.insert(thrice.end(), one.pixels.begin(), one.pixels.end());
  EXPECT_EQ(three.pixels, thrice);
}

TEST(Jpeg, IsDecodedSmallerWhereTheShorterSideStaysLongEnough) {
  const std::string jpeg = jpeg_of({203, 301, 3});
  const auto shape = [&](uint32_t min_side) {
    const Decoded decoded = decode(jpeg, {.min_side = min_side}, ImageLayout::kPlanes);
    EXPECT_EQ(decoded.error, "");
    return decoded.shape;
  };
  EXPECT_EQ(shape(0), (ImageShape{203, 301, 3}));
  EXPECT_EQ(shape(300), (ImageShape{203, 301, 3}));
  EXPECT_EQ(shape(103), (ImageShape{203, 301, 3}));
  EXPECT_EQ(shape(102), (ImageShape{102, 151, 3}));
  EXPECT_EQ(shape(51), (ImageShape{51, 76, 3}));
  EXPECT_EQ(shape(26), (ImageShape{26, 38, 3}));
  EXPECT_EQ(shape(1), (ImageShape{26, 38, 3}));
  // It is the same picture: a pixel is the mean of those it stands for.
  const Decoded whole = decode(jpeg);
  const Decoded half = decode(jpeg, {.min_side = 100});
  for (uint32_t y = 5; y < 95; y += 7) {
    for (uint32_t x = 5; x < 145; x += 11) {
      const auto at = [&](uint32_t row, uint32_t column) { return whole.pixels[(row * 301 + column) * 3 + 1]; };
      const int mean = (at(2 * y, 2 * x) + at(2 * y, 2 * x + 1) + at(2 * y + 1, 2 * x) + at(2 * y + 1, 2 * x + 1)) / 4;
      EXPECT_NEAR(half.pixels[(y * 151 + x) * 3 + 1], mean, 25);
    }
  }
}

TEST(Jpeg, ExifOrientationHasAnEffectOnlyWhereAskedFor) {
  const ImageShape shape{18, 29, 3};
  const std::string jpeg = jpeg_of(shape);
  const Decoded plain = decode(jpeg);
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const std::string file = with_exif(jpeg, tiff(orientation % 2 == 0, orientation));
    EXPECT_EQ(decode(file).pixels, plain.pixels);
    const auto expected = turned(plain.pixels, shape, orientation);
    const ImageOptions options{.apply_exif_orientation = true};
    const Decoded upright = decode(file, options);
    EXPECT_EQ(upright.shape, (orientation < 5 ? shape : ImageShape{29, 18, 3}));
    EXPECT_EQ(upright.pixels, expected) << orientation;
    EXPECT_EQ(decode(file, options, ImageLayout::kPlanes).pixels, planes_of(expected, 3)) << orientation;
  }
}

TEST(Jpeg, ExifThatCannotBeUnderstoodIsUpright) {
  EXPECT_EQ(detail::exif_orientation(tiff(true, 6)), 6);
  EXPECT_EQ(detail::exif_orientation(tiff(false, 3)), 3);
  EXPECT_EQ(detail::exif_orientation(tiff(true, 9)), 1);
  EXPECT_EQ(detail::exif_orientation(tiff(true, 0)), 1);
  EXPECT_EQ(detail::exif_orientation(""), 1);
  EXPECT_EQ(detail::exif_orientation("XX" + tiff(true, 6).substr(2)), 1);
  for (size_t size = 0; size < 20; ++size) EXPECT_EQ(detail::exif_orientation(tiff(true, 6).substr(0, size)), 1);
  EXPECT_EQ(detail::exif_orientation(std::string("II\x2A\0\xFF\xFF\xFF\xFF", 8)), 1);
  EXPECT_EQ(detail::exif_orientation(std::string("II\x2A\0\x08\0\0\0\xFF\xFF", 10)), 1);
}

TEST(Jpeg, EveryTruncationIsAnErrorThatSaysSo) {
  for (const bool progressive : {false, true}) {
    const std::string jpeg = jpeg_of({16, 24, 3}, {.progressive = progressive});
    for (size_t size = 3; size < jpeg.size(); ++size) {
      const Decoded decoded = decode(jpeg.substr(0, size));
      EXPECT_NE(decoded.error, "") << size << " of " << jpeg.size();
      if (size + 40 > jpeg.size()) {
        EXPECT_EQ(decoded.error, "\"a.img\", at byte " + std::to_string(size) +
                                     ": expected the rest of the JPEG, but found the end of the file");
      }
    }
  }
}

TEST(Jpeg, Messages) {
  EXPECT_EQ(decode("").error,
            "\"a.img\", at byte 0: expected the first bytes of a JPEG or a PNG, but found an empty file");
  EXPECT_EQ(decode("GIF89a").error,
            "\"a.img\", at byte 0: expected the first bytes of a JPEG or a PNG, but found others");
  const std::string jpeg = jpeg_of({64, 64, 3});
  const size_t after_header = jpeg.find("\xFF\xDA") + 14;
  EXPECT_EQ(decode(jpeg, {.max_pixels = 4095}).error, "\"a.img\", at byte " + std::to_string(after_header) +
                                                          ": expected an image of at most 4095 pixels, but found 4096");
  EXPECT_EQ(decode(jpeg, {.max_pixels = 4096}).error, "");
}

// Sizes in the header that the rest of the file cannot hold.
TEST(Jpeg, AHugeImageInASmallFileIsAnErrorBeforeMemoryIsTaken) {
  std::string jpeg = jpeg_of({16, 16, 1});
  const size_t at = jpeg.find("\xFF\xC0") + 5;
  jpeg.replace(at, 4, std::string("\x30\x00\x30\x00", 4));
  const std::string error = decode(jpeg).error;
  EXPECT_NE(error.find("expected at least 294912 bytes for 12288 x 12288 pixels, but found "), std::string::npos)
      << error;
}

TEST(Jpeg, TooManyScansAreAnError) {
  std::string jpeg = jpeg_of({16, 16, 1}, {.progressive = true});
  const size_t end = jpeg.rfind("\xFF\xD9");
  const size_t scan = jpeg.rfind("\xFF\xDA");
  const std::string last_scan = jpeg.substr(scan, end - scan);
  for (int i = 0; i < 200; ++i) jpeg.insert(end, last_scan);
  const std::string error = decode(jpeg).error;
  EXPECT_NE(error.find("expected a JPEG that libjpeg can decode, but found more than 100 scans"), std::string::npos)
      << error;
}

}  // namespace
}  // namespace cohort::files
