/// The interface of the image formats to ImageReader. Private to this folder.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "cohort/base/error/result.h"
#include "cohort/extras/files/images/image_reader.h"

namespace cohort::files::detail {

class ImageDecoder {
 public:
  ImageDecoder() = default;
  ImageDecoder(const ImageDecoder&) = delete;
  ImageDecoder& operator=(const ImageDecoder&) = delete;
  virtual ~ImageDecoder() = default;

  virtual ImageShape shape() const = 0;
  virtual base::Result<void> read(uint8_t* pixels, ImageLayout layout) = 0;
};

base::Result<std::unique_ptr<ImageDecoder>> open_jpeg(const InputFile& file, const ImageOptions& options);
base::Result<std::unique_ptr<ImageDecoder>> open_png(const InputFile& file, const ImageOptions& options);

/// Fails if the header asks for more pixels than the options allow. `offset`: of the sizes in the file.
base::Result<void> check_num_pixels(const InputFile& file, uint64_t offset, uint64_t num_pixels, uint64_t max_pixels);

/// Returns the number of channels that the mode makes from a file with `file_channels` channels.
uint32_t channels_of(ImageMode mode, uint32_t file_channels);

}  // namespace cohort::files::detail
