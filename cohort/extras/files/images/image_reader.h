/// ImageReader: decodes JPEG (libjpeg-turbo) and PNG (libpng):
///
///     Result<ImageReader> reader = ImageReader::open(file, {.mode = ImageMode::kRgb});
///     std::vector<uint8_t> pixels(reader->shape().num_bytes());
///     Result<void> done = reader->read(pixels.data());
///
/// Pixels equal those of PIL.Image.open(...).convert("RGB"): ignores profiles, gamma and, by default, EXIF orientation; takes the
/// higher 8 of 16 bits. A file that ends too early is an error, as in PIL; JPEG data in which libjpeg-turbo can only guess some
/// blocks are not an error, as in PIL. A PNG's checksums must be correct.
///
/// Thread-safety: a reader belongs to one thread; different threads may use different readers concurrently.
#pragma once

#include <cstdint>
#include <memory>

#include "cohort/base/error/result.h"
#include "cohort/extras/files/images/image_format.h"
#include "cohort/files/input/input_file.h"

namespace cohort::files {

struct ImageOptions {
  ImageMode mode = ImageMode::kRgb;
  /// For JPEG: decodes to 1/2, 1/4 or 1/8 of each side (rounded up), if the shorter side still has this many pixels, which takes
  /// a fraction of the time. 0 means full size. Has no effect on PNG.
  uint32_t min_side = 0;
  /// Rotates and flips the image as its EXIF data say.
  bool apply_exif_orientation = false;
  /// Larger images are errors. The default is PIL's limit against decompression bombs (Image.MAX_IMAGE_PIXELS * 2).
  uint64_t max_pixels = 178'956'970;
};

namespace detail {
class ImageDecoder;
}

class ImageReader {
 public:
  /// Reads the header. The file must outlive the reader, and other programs must not shorten it (InputFile::map).
  static base::Result<ImageReader> open(const InputFile& file, const ImageOptions& options = {});
  ImageReader(ImageReader&&) noexcept;
  ImageReader& operator=(ImageReader&&) noexcept;
  ~ImageReader();

  /// The shape of the image that read() writes.
  ImageShape shape() const;
  /// Writes shape().num_bytes() bytes; after an error only some of them. Call it once.
  base::Result<void> read(uint8_t* pixels, ImageLayout layout = ImageLayout::kPlanes);

 private:
  explicit ImageReader(std::unique_ptr<detail::ImageDecoder> decoder);
  std::unique_ptr<detail::ImageDecoder> decoder_;
};

}  // namespace cohort::files
