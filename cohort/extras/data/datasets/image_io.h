/// Images from files and into files, as torchvision.io has them:
///
///     at::Tensor image = read_image("cat.jpg", ImageReadMode::kRgb);     // uint8 [3, height, width]
///     write_png(image, "cat.png");
///
/// JPEG is read by libjpeg-turbo, PNG by libpng; the first bytes say which, not the name. Of 16 bits per channel the higher 8
/// count (torchvision gives uint16 for those); CMYK becomes RGB. Pixels are those of PIL's convert("RGB").
///
/// Everything here throws c10::Error that names the file, the byte and what was expected there, for files that are missing, cut
/// off or damaged; c10::TypeError and c10::ValueError for arguments that cannot be. Files are read as a whole first: one that
/// changes meanwhile is an error at worst.
/// Thread-safety: any number of threads.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "cohort/export.h"

namespace cohort::data {

/// Alpha that is not asked for is dropped; alpha that a file does not have is 255.
enum class ImageReadMode { kUnchanged, kGray, kGrayAlpha, kRgb, kRgbAlpha };

struct DecodeImageOptions {
  /// Turn and mirror the image as its EXIF data say.
  bool apply_exif_orientation = false;
  /// For JPEG: the smallest of 1/1, 1/2, 1/4 and 1/8 of the size whose shorter side still has so many pixels. Takes a fraction
  /// of the time. 0: the full size. Not in torchvision; PIL has it as Image.draft().
  int64_t decode_size = 0;
  /// Larger images are errors, before memory is taken. The default is PIL's.
  int64_t max_pixels = 178'956'970;
};

/// `encoded`: the bytes of a file, uint8 [size] on the CPU. Returns: uint8 [channels, height, width].
COHORT_API at::Tensor decode_image(const at::Tensor& encoded, ImageReadMode mode = ImageReadMode::kUnchanged,
                                   const DecodeImageOptions& options = {});
COHORT_API at::Tensor read_image(const std::string& path, ImageReadMode mode = ImageReadMode::kUnchanged,
                                 const DecodeImageOptions& options = {});

/// `image`: uint8 [channels, height, width] on the CPU, any strides; 1 or 3 channels for JPEG, 1 to 4 for PNG.
/// Returns: the bytes of a file, uint8 [size]. quality: 1 to 100.
COHORT_API at::Tensor encode_jpeg(const at::Tensor& image, int64_t quality = 75);
/// compression_level: 0 to 9.
COHORT_API at::Tensor encode_png(const at::Tensor& image, int64_t compression_level = 6);
COHORT_API void write_jpeg(const at::Tensor& image, const std::string& path, int64_t quality = 75);
COHORT_API void write_png(const at::Tensor& image, const std::string& path, int64_t compression_level = 6);

}  // namespace cohort::data
