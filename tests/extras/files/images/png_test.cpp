#include <gtest/gtest.h>
#include <png.h>

#include <string>

#include "tests/extras/files/images/pictures.h"

namespace cohort::files {
namespace {

struct PngFile {
  int bit_depth = 8;
  int color_type = PNG_COLOR_TYPE_RGB;
  bool is_interlaced = false;
  int exif_orientation = 0;
  bool has_transparency = false;
};

// The bytes of a row as the file has them, whatever they mean.
uint8_t raw_byte(size_t y, size_t i) { return static_cast<uint8_t>(37 * y + 11 * i + y * i); }

size_t raw_row_size(const PngFile& file, uint32_t width) {
  constexpr size_t kChannels[] = {1, 0, 3, 1, 2, 0, 4};
  return (width * kChannels[file.color_type] * static_cast<size_t>(file.bit_depth) + 7) / 8;
}

std::string png_of(const PngFile& file, uint32_t height, uint32_t width) {
  std::string bytes;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(
      png, &bytes,
      [](png_structp p, png_bytep data, size_t size) {
        static_cast<std::string*>(png_get_io_ptr(p))->append(reinterpret_cast<char*>(data), size);
      },
      nullptr);
  png_set_IHDR(png, info, width, height, file.bit_depth, file.color_type,
               file.is_interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
               PNG_FILTER_TYPE_DEFAULT);
  png_color palette[256];
  png_byte alpha[256];
  for (int i = 0; i < 256; ++i) {
    palette[i] = {static_cast<png_byte>(i * 3), static_cast<png_byte>(255 - i), static_cast<png_byte>(i ^ 0x5A)};
    alpha[i] = static_cast<png_byte>(i * 7);
  }
  if (file.color_type == PNG_COLOR_TYPE_PALETTE) png_set_PLTE(png, info, palette, 1 << file.bit_depth);
  if (file.has_transparency) {
    png_color_16 color{};
    color.gray = raw_byte(1, 1);
    png_set_tRNS(png, info, alpha, 1 << file.bit_depth, &color);
  }
  png_byte exif[26] = {'I', 'I', 42, 0, 8, 0, 0, 0, 1, 0, 0x12, 1, 3, 0, 1, 0, 0, 0};
  exif[18] = static_cast<png_byte>(file.exif_orientation);
  if (file.exif_orientation) png_set_eXIf_1(png, info, sizeof(exif), exif);
  png_write_info(png, info);
  const int passes = png_set_interlace_handling(png);
  std::vector<uint8_t> row(raw_row_size(file, width));
  for (int pass = 0; pass < passes; ++pass) {
    for (size_t y = 0; y < height; ++y) {
      for (size_t i = 0; i < row.size(); ++i) row[i] = raw_byte(y, i);
      png_write_row(png, row.data());
    }
  }
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return bytes;
}

// The number of a pixel's channel, cut to 8 bits, or a palette's index.
uint32_t sample(const PngFile& file, uint32_t y, uint32_t i) {
  if (file.bit_depth == 16) return raw_byte(y, 2 * i);
  const uint32_t per_byte = 8 / static_cast<uint32_t>(file.bit_depth);
  const uint32_t shift = 8 - static_cast<uint32_t>(file.bit_depth) * (i % per_byte + 1);
  return raw_byte(y, i / per_byte) >> shift & ((1U << file.bit_depth) - 1);
}

std::vector<uint8_t> expected_rgb(const PngFile& file, uint32_t height, uint32_t width) {
  std::vector<uint8_t> pixels;
  for (uint32_t y = 0; y < height; ++y) {
    for (uint32_t x = 0; x < width; ++x) {
      for (uint32_t c = 0; c < 3; ++c) {
        if (file.color_type == PNG_COLOR_TYPE_PALETTE) {
          const auto i = sample(file, y, x);
          const uint32_t color[] = {i * 3, 255 - i, i ^ 0x5A};
          pixels.push_back(static_cast<uint8_t>(color[c]));
        } else if (file.color_type & PNG_COLOR_MASK_COLOR) {
          pixels.push_back(
              static_cast<uint8_t>(sample(file, y, x * (file.color_type & PNG_COLOR_MASK_ALPHA ? 4 : 3) + c)));
        } else {
          const uint32_t gray = sample(file, y, x * (file.color_type & PNG_COLOR_MASK_ALPHA ? 2 : 1));
          pixels.push_back(static_cast<uint8_t>(file.bit_depth < 8 ? gray * 255 / ((1U << file.bit_depth) - 1) : gray));
        }
      }
    }
  }
  return pixels;
}

TEST(Png, EveryKindOfFileBecomesRgb) {
  const std::vector<std::pair<int, std::vector<int>>> kinds = {{PNG_COLOR_TYPE_GRAY, {1, 2, 4, 8, 16}},
                                                               {PNG_COLOR_TYPE_RGB, {8, 16}},
                                                               {PNG_COLOR_TYPE_PALETTE, {1, 2, 4, 8}},
                                                               {PNG_COLOR_TYPE_GRAY_ALPHA, {8, 16}},
                                                               {PNG_COLOR_TYPE_RGB_ALPHA, {8, 16}}};
  for (const auto& [color_type, bit_depths] : kinds) {
    for (const int bit_depth : bit_depths) {
      for (const bool is_interlaced : {false, true}) {
        const PngFile file{.bit_depth = bit_depth, .color_type = color_type, .is_interlaced = is_interlaced};
        const std::string png = png_of(file, 13, 19);
        const Decoded decoded = decode(png);
        EXPECT_EQ(decoded.error, "");
        EXPECT_EQ(decoded.shape, (ImageShape{13, 19, 3}));
        EXPECT_EQ(decoded.pixels, expected_rgb(file, 13, 19)) << color_type << ' ' << bit_depth << ' ' << is_interlaced;
        EXPECT_EQ(decode(png, {}, ImageLayout::kPlanes).pixels, planes_of(decoded.pixels, 3));
      }
    }
  }
}

TEST(Png, Modes) {
  const std::string png = png_of({.color_type = PNG_COLOR_TYPE_RGB_ALPHA}, 7, 9);
  const Decoded rgba = decode(png, {.mode = ImageMode::kUnchanged});
  const Decoded rgb = decode(png);
  const Decoded gray = decode(png, {.mode = ImageMode::kGray});
  const Decoded gray_alpha = decode(png, {.mode = ImageMode::kGrayAlpha});
  ASSERT_EQ(rgba.shape.channels, 4U);
  ASSERT_EQ(gray.shape.channels, 1U);
  ASSERT_EQ(gray_alpha.shape.channels, 2U);
  EXPECT_EQ(decode(png, {.mode = ImageMode::kRgbAlpha}).pixels, rgba.pixels);
  for (size_t i = 0; i < 63; ++i) {
    const uint8_t* pixel = &rgba.pixels[4 * i];
    EXPECT_EQ(pixel[3], raw_byte(i / 9, 4 * (i % 9) + 3));
    EXPECT_EQ(std::vector(pixel, pixel + 3), std::vector(&rgb.pixels[3 * i], &rgb.pixels[3 * i] + 3));
    EXPECT_EQ(gray.pixels[i], (pixel[0] * 19595 + pixel[1] * 38470 + pixel[2] * 7471 + 32768) >> 16);
    EXPECT_EQ(gray_alpha.pixels[2 * i], gray.pixels[i]);
    EXPECT_EQ(gray_alpha.pixels[2 * i + 1], pixel[3]);
  }
}

TEST(Png, TransparentColorsAreAlphaWhereItIsWanted) {
  const PngFile palette{.bit_depth = 4, .color_type = PNG_COLOR_TYPE_PALETTE, .has_transparency = true};
  const Decoded colors = decode(png_of(palette, 5, 6), {.mode = ImageMode::kRgbAlpha});
  const PngFile gray{.color_type = PNG_COLOR_TYPE_GRAY, .has_transparency = true};
  const Decoded grays = decode(png_of(gray, 5, 6), {.mode = ImageMode::kUnchanged});
  ASSERT_EQ(colors.shape.channels, 4U);
  ASSERT_EQ(grays.shape.channels, 2U);
  for (uint32_t i = 0; i < 30; ++i) {
    EXPECT_EQ(colors.pixels[4 * i + 3], static_cast<uint8_t>(sample(palette, i / 6, i % 6) * 7));
    EXPECT_EQ(grays.pixels[2 * i + 1], grays.pixels[2 * i] == raw_byte(1, 1) ? 0 : 255);
  }
  EXPECT_EQ(grays.pixels[2 * 7 + 1], 0);
  EXPECT_EQ(decode(png_of(palette, 5, 6)).pixels, expected_rgb(palette, 5, 6));
  EXPECT_EQ(decode(png_of(gray, 5, 6)).pixels, expected_rgb(gray, 5, 6));
}

TEST(Png, ExifOrientationHasAnEffectOnlyWhereAskedFor) {
  const ImageShape shape{5, 8, 3};
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const PngFile file{.exif_orientation = orientation};
    const std::string png = png_of(file, shape.height, shape.width);
    const auto plain = expected_rgb(file, shape.height, shape.width);
    EXPECT_EQ(decode(png).pixels, plain);
    EXPECT_EQ(decode(png, {.apply_exif_orientation = true}).pixels, turned(plain, shape, orientation)) << orientation;
  }
}

TEST(Png, EveryTruncationIsAnErrorThatSaysSo) {
  const std::string png = png_of({}, 6, 7);
  const auto error = [&](size_t size) { return decode(png.substr(0, size)).error; };
  for (size_t size = 8; size < png.size(); ++size) EXPECT_NE(error(size), "") << size;
  EXPECT_EQ(error(8), "\"a.img\", at byte 8: expected 8 bytes of the next chunk's head, but found the end of the file");
  EXPECT_EQ(error(30),
            "\"a.img\", at byte 16: expected 17 bytes of the chunk IHDR, but found only 14 before the end of the file");
  EXPECT_EQ(error(png.size() - 1),
            "\"a.img\", at byte " + std::to_string(png.size() - 4) +
                ": expected 4 bytes of the chunk IEND, but found only 3 before the end of the file");
}

TEST(Png, AWrongByteOfThePixelsIsAnError) {
  std::string png = png_of({}, 6, 7);
  const size_t at = png.find("IDAT") + 20;
  png[at] = static_cast<char>(png[at] ^ 4);
  EXPECT_NE(decode(png).error, "");
}

TEST(Png, Messages) {
  const std::string png = png_of({}, 6, 7);
  EXPECT_EQ(decode(png, {.max_pixels = 41}).error,
            "\"a.img\", at byte 16: expected an image of at most 41 pixels, but found 42");
  EXPECT_EQ(decode(png, {.max_pixels = 42}).error, "");
  std::string no_name = png;
  no_name[38] = '7';
  EXPECT_EQ(decode(no_name).error,
            "\"a.img\", at byte 37: expected four letters, the name of a chunk, but found others");
  std::string wrong = png;
  wrong[29] = 'x';
  EXPECT_EQ(decode(wrong).error,
            "\"a.img\", at byte 33: expected a PNG that libpng can decode, but found IHDR: CRC error");
}

// Sizes in the header that the rest of the file cannot hold.
TEST(Png, AHugeImageInASmallFileIsAnErrorBeforeMemoryIsTaken) {
  const std::string small = png_of({}, 6, 7);
  const std::string large = png_of({}, 1000, 1000).substr(0, 33);
  const Decoded decoded = decode(large + small.substr(33));
  EXPECT_NE(decoded.error.find("expected at least 2907 bytes for 1000 x 1000 pixels, but found "), std::string::npos)
      << decoded.error;
}

}  // namespace
}  // namespace cohort::files
