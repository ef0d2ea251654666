/// Reads and writes images, as torchvision.io:
///
///     at::Tensor image = read_image("cat.jpg", ImageReadMode::kRgb);     // uint8 [3, height, width]
///     write_png(image, "cat.png");
///
/// Reads JPEG with libjpeg-turbo and PNG with libpng; the first bytes tell the format, not the name. Takes the higher 8 bits of
/// 16-bit channels (torchvision returns uint16); CMYK becomes RGB. Pixels equal those of PIL's convert("RGB").
///
/// All functions throw c10::Error for missing, incomplete or damaged files, naming the file, the byte and what was expected
/// there, and c10::TypeError or c10::ValueError for invalid arguments. They read the whole file first: a change meanwhile causes
/// at worst an error. Thread-safety: any number of threads.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

#include "cohort/export.h"

namespace cohort::data {

/// Drops alpha that the mode does not have; sets alpha that the file does not have to 255.
enum class ImageReadMode { kUnchanged, kGray, kGrayAlpha, kRgb, kRgbAlpha };

struct DecodeImageOptions {
  /// Rotates and flips the image as its EXIF data say.
  bool apply_exif_orientation = false;
  /// For JPEG: decodes to the smallest of 1/1, 1/2, 1/4 and 1/8 of the size whose shorter side still has this many pixels. Takes
  /// a fraction of the time. If absent, full size. Not in torchvision; PIL's Image.draft().
  std::optional<int64_t> decode_size = {};
  /// Larger images are errors, before memory is allocated. The default is PIL's.
  int64_t max_pixels = 178'956'970;
};

/// `encoded`: the bytes of a file, uint8 [size] on the CPU. Returns: uint8 [channels, height, width].
COHORT_API at::Tensor decode_image(const at::Tensor& encoded, ImageReadMode mode = ImageReadMode::kUnchanged,
                                   const DecodeImageOptions& options = {});
COHORT_API at::Tensor read_image(const std::string& path, ImageReadMode mode = ImageReadMode::kUnchanged,
                                 const DecodeImageOptions& options = {});

/// `image`: uint8 [channels, height, width] on the CPU, any strides; 1 or 3 channels for JPEG, 1 to 4 for PNG. Returns: the bytes
/// of a file, uint8 [size]. quality: 1 to 100.
COHORT_API at::Tensor encode_jpeg(const at::Tensor& image, int64_t quality = 75);
/// compression_level: 0 to 9.
COHORT_API at::Tensor encode_png(const at::Tensor& image, int64_t compression_level = 6);
COHORT_API void write_jpeg(const at::Tensor& image, const std::string& path, int64_t quality = 75);
COHORT_API void write_png(const at::Tensor& image, const std::string& path, int64_t compression_level = 6);

}  // namespace cohort::data
