#include "cohort/extras/data/datasets/image_io.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/data/error_text.h"
#include "tests/extras/data/transforms/images.h"

namespace cohort::data {
namespace {

using test::error_text;
using test::noise;

class ImageIo : public testing::Test {
 protected:
  ImageIo() : folder_(std::filesystem::temp_directory_path() / ("image_io." + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~ImageIo() override { std::filesystem::remove_all(folder_); }
  std::string path(const char* name) const { return (folder_ / name).string(); }

  std::filesystem::path folder_;
};

TEST_F(ImageIo, PngKeepsTensorsOfAnyStrides) {
  for (int64_t channels = 1; channels <= 4; ++channels) {
    const at::Tensor image = noise(channels, 13, 21);
    write_png(image, path("a.png"));
    EXPECT_TRUE(at::equal(read_image(path("a.png")), image));
    const at::Tensor turned = image.transpose(1, 2);
    EXPECT_TRUE(at::equal(decode_image(encode_png(turned, 1)), turned));
    EXPECT_TRUE(read_image(path("a.png")).is_contiguous());
  }
}

TEST_F(ImageIo, JpegFilesAreReadInTheModeAskedFor) {
  const at::Tensor image = at::full({3, 24, 40}, 90, at::kByte);
  image[0].fill_(200);
  write_jpeg(image, path("a.jpg"), 95);
  const at::Tensor read = read_image(path("a.jpg"), ImageReadMode::kRgb);
  EXPECT_LE(test::largest_difference(read, image), 4);
  EXPECT_TRUE(at::equal(decode_image(encode_jpeg(image, 95)), read));
  EXPECT_EQ(read_image(path("a.jpg"), ImageReadMode::kGray).sizes(), (std::vector<int64_t>{1, 24, 40}));
  EXPECT_EQ(read_image(path("a.jpg"), ImageReadMode::kRgbAlpha).sizes(), (std::vector<int64_t>{4, 24, 40}));
  EXPECT_EQ(read_image(path("a.jpg"), ImageReadMode::kRgb, {.decode_size = 12}).sizes(),
            (std::vector<int64_t>{3, 12, 20}));
  EXPECT_LT(encode_jpeg(noise(3, 40, 40), 20).numel(), encode_jpeg(noise(3, 40, 40), 90).numel());
}

TEST_F(ImageIo, Messages) {
  const auto read_error = [&](const std::string& file, DecodeImageOptions options = {}) {
    return error_text<c10::Error>([&] { read_image(file, ImageReadMode::kRgb, options); });
  };
  EXPECT_EQ(read_error(path("no.png")),
            "[cohort] cannot open \"" + path("no.png") + "\": No such file or directory (ENOENT)");
  ASSERT_EQ(mkfifo(path("pipe.png").c_str(), 0600), 0);
  EXPECT_EQ(read_error(path("pipe.png")),
            "[cohort] cannot open \"" + path("pipe.png") + "\": it is not a regular file");
  EXPECT_EQ(read_error(folder_.string()), "[cohort] cannot open \"" + folder_.string() + "\": it is a folder");
  const at::Tensor image = noise(3, 8, 9);
  write_png(image, path("a.png"));
  EXPECT_EQ(read_error(path("a.png"), {.max_pixels = 71}),
            "[cohort] \"" + path("a.png") + "\", at byte 16: expected an image of at most 71 pixels, but found 72");
  EXPECT_EQ(read_error(path("a.png"), {.decode_size = 0}), "[cohort] decode_size must be 1 to 2^32 - 1, but is 0");
  std::filesystem::resize_file(path("a.png"), 20);
  EXPECT_EQ(read_error(path("a.png")),
            "[cohort] \"" + path("a.png") +
                "\", at byte 16: expected 17 bytes of the chunk IHDR, but found only 4 before the end of the file");
  EXPECT_EQ(error_text<c10::Error>([&] {
              decode_image(at::tensor({1, 2, 3}, at::kByte));
            }),
            "[cohort] \"the given bytes\", at byte 0: expected the first bytes of a JPEG or a PNG, but found others");
  EXPECT_EQ(error_text<c10::TypeError>([&] { decode_image(image); }),
            "[cohort] decode_image needs the bytes of a file, uint8 [size] on the CPU");
  EXPECT_EQ(error_text<c10::TypeError>([&] { encode_jpeg(image.to(at::kFloat)); }),
            "[cohort] encode_jpeg needs an image uint8 [channels, height, width] on the CPU");
  EXPECT_EQ(error_text<c10::ValueError>([&] { write_jpeg(image, path("a.jpg"), 0); }),
            "Image quality should be a positive number between 1 and 100");
  EXPECT_EQ(error_text<c10::ValueError>([&] { write_png(image, path("b.png"), 10); }),
            "Compression level should be between 0 and 9");
  EXPECT_EQ(error_text<c10::Error>([&] { encode_jpeg(noise(2, 8, 9)); }),
            "[cohort] cannot write an image of 2 channels as JPEG: it must have 1 or 3");
  EXPECT_EQ(error_text<c10::Error>([&] { write_png(image, path("no/b.png")); }),
            "[cohort] cannot write \"" + path("no/b.png") + "\": No such file or directory (ENOENT)");
}

}  // namespace
}  // namespace cohort::data
