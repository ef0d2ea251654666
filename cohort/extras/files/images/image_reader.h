/// ImageReader decodes JPEG (libjpeg-turbo) and PNG (libpng):
///
///     Result<ImageReader> reader = ImageReader::open(file, {.mode = ImageMode::kRgb});
///     std::vector<uint8_t> pixels(reader->shape().num_bytes());
///     Result<void> done = reader->read(pixels.data());
///
/// Pixels are those that PIL.Image.open(...).convert("RGB") gives: profiles, gamma and, unless asked for, EXIF orientation have
/// no effect; of 16 bits the higher 8 count. A file that ends too early is an error, as with PIL; JPEG data in which
/// libjpeg-turbo can only guess some blocks is not, as with PIL. A PNG's checksums must be right.
///
/// Thread-safety: a reader belongs to one thread; different readers may be used at once.
#pragma once

#include <cstdint>
#include <memory>

#include "cohort/base/error/result.h"
#include "cohort/extras/files/images/image_format.h"
#include "cohort/files/input/input_file.h"

namespace cohort::files {

struct ImageOptions {
  ImageMode mode = ImageMode::kRgb;
  /// For JPEG: decode smaller, if the shorter side still has so many pixels (1/2, 1/4 or 1/8 of each side, rounded up), which
  /// takes a fraction of the time. 0: in full size. Does nothing for PNG.
  uint32_t min_side = 0;
  /// Turn and mirror the image as its EXIF data say.
  bool apply_exif_orientation = false;
  /// Larger images are errors; the default is PIL's limit against decompression bombs (Image.MAX_IMAGE_PIXELS * 2).
  uint64_t max_pixels = 178'956'970;
};

namespace detail {
class ImageDecoder;
}

class ImageReader {
 public:
  /// Reads the header. The file must outlive the reader, and must not be one that others may shorten (InputFile::map).
  static base::Result<ImageReader> open(const InputFile& file, const ImageOptions& options = {});
  ImageReader(ImageReader&&) noexcept;
  ImageReader& operator=(ImageReader&&) noexcept;
  ~ImageReader();

  /// What read() will write.
  ImageShape shape() const;
  /// Once. Writes shape().num_bytes() bytes; after an error some of them.
  base::Result<void> read(uint8_t* pixels, ImageLayout layout = ImageLayout::kPlanes);

 private:
  explicit ImageReader(std::unique_ptr<detail::ImageDecoder> decoder);
  std::unique_ptr<detail::ImageDecoder> decoder_;
};

}  // namespace cohort::files
