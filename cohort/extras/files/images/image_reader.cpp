#include "cohort/extras/files/images/image_reader.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "cohort/extras/files/images/image_decoder.h"

namespace cohort::files {
namespace detail {

base::Result<void> check_num_pixels(const InputFile& file, uint64_t offset, uint64_t num_pixels, uint64_t max_pixels) {
  if (num_pixels <= max_pixels) return {};
  return file.error_at(offset, fmt::format("an image of at most {} pixels", max_pixels), std::to_string(num_pixels));
}

uint32_t channels_of(ImageMode mode, uint32_t file_channels) {
  return mode == ImageMode::kUnchanged ? file_channels : static_cast<uint32_t>(mode);
}

static_assert(static_cast<int>(ImageMode::kGray) == 1 && static_cast<int>(ImageMode::kRgbAlpha) == 4);

}  // namespace detail

base::Result<ImageReader> ImageReader::open(const InputFile& file, const ImageOptions& options) {
  const std::string_view bytes = file.bytes();
  const bool is_jpeg = bytes.starts_with("\xFF\xD8\xFF");
  if (!is_jpeg && !bytes.starts_with("\x89PNG\r\n\x1A\n")) {
    return file.error_at(0, "the first bytes of a JPEG or a PNG", bytes.empty() ? "an empty file" : "others");
  }
  auto decoder = is_jpeg ? detail::open_jpeg(file, options) : detail::open_png(file, options);
  if (!decoder) return std::move(decoder).error();
  return ImageReader(std::move(decoder).value());
}

ImageReader::ImageReader(std::unique_ptr<detail::ImageDecoder> decoder) : decoder_(std::move(decoder)) {}
ImageReader::ImageReader(ImageReader&&) noexcept = default;
ImageReader& ImageReader::operator=(ImageReader&&) noexcept = default;
ImageReader::~ImageReader() = default;

ImageShape ImageReader::shape() const { return decoder_->shape(); }

base::Result<void> ImageReader::read(uint8_t* pixels, ImageLayout layout) { return decoder_->read(pixels, layout); }

}  // namespace cohort::files
