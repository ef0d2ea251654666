#include "cohort/extras/data/datasets/image_io.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "cohort/base/file/file.h"
#include "cohort/base/file/open_file.h"
#include "cohort/base/text/text.h"
#include "cohort/comm/error/throw_error.h"
#include "cohort/extras/files/images/image_reader.h"
#include "cohort/extras/files/images/image_writer.h"

namespace cohort::data {
namespace {

constexpr size_t kMaxImageFile = size_t{1} << 30;
// Permissions before the umask, as with Python's open().
constexpr mode_t kImageFileMode = 0666;

at::Tensor decode_bytes(std::string name, std::string_view bytes, ImageReadMode mode,
                        const DecodeImageOptions& options) {
  const int64_t size = options.decode_size.value_or(1);
  TORCH_CHECK_VALUE(size >= 1 && size <= UINT32_MAX, "[cohort] decode_size must be 1 to 2^32 - 1, but is ", size);
  TORCH_CHECK_VALUE(options.max_pixels >= 0, "[cohort] max_pixels must be at least 0, but is ", options.max_pixels);
  const auto file = files::InputFile::view(std::move(name), bytes);
  files::ImageOptions file_options;
  file_options.mode = static_cast<files::ImageMode>(mode);
  file_options.min_side = static_cast<uint32_t>(options.decode_size.value_or(0));
  file_options.apply_exif_orientation = options.apply_exif_orientation;
  file_options.max_pixels = static_cast<uint64_t>(options.max_pixels);
  auto reader = comm::or_throw(files::ImageReader::open(file, file_options));
  const files::ImageShape shape = reader.shape();
  at::Tensor image = at::empty({shape.channels, shape.height, shape.width}, at::kByte);
  comm::or_throw(reader.read(image.mutable_data_ptr<uint8_t>()));
  return image;
}

static_assert(static_cast<int>(ImageReadMode::kRgbAlpha) == static_cast<int>(files::ImageMode::kRgbAlpha));

at::Tensor tensor_of_bytes(const std::string& bytes) {
  at::Tensor result = at::empty({static_cast<int64_t>(bytes.size())}, at::kByte);
  std::memcpy(result.mutable_data_ptr<uint8_t>(), bytes.data(), bytes.size());
  return result;
}

// Calls `encode` with the image, which is valid only during the call.
template <typename Encode>
std::string encode_planes(const at::Tensor& image, const char* who, Encode encode) {
  TORCH_CHECK_TYPE(image.defined() && image.dim() == 3 && image.is_cpu() && image.scalar_type() == at::kByte,
                   "[cohort] ", who, " needs an image uint8 [channels, height, width] on the CPU");
  for (const int64_t size : image.sizes()) {
    TORCH_CHECK_VALUE(size <= INT32_MAX, "[cohort] ", who, " got an image of ", image.sizes(), ", which is too large");
  }
  const at::Tensor planes = image.contiguous();
  const files::ImageShape shape{static_cast<uint32_t>(image.size(1)), static_cast<uint32_t>(image.size(2)),
                                static_cast<uint32_t>(image.size(0))};
  return comm::or_throw(encode(files::ImageView{planes.const_data_ptr<uint8_t>(), shape, files::ImageLayout::kPlanes}));
}

std::string jpeg_bytes(const at::Tensor& image, int64_t quality, const char* who) {
  TORCH_CHECK_VALUE(quality >= 1 && quality <= 100, "Image quality should be a positive number between 1 and 100");
  return encode_planes(image, who, [quality](const files::ImageView& view) {
    files::JpegOptions options;
    options.quality = static_cast<int>(quality);
    return files::encode_jpeg(view, options);
  });
}

std::string png_bytes(const at::Tensor& image, int64_t compression_level, const char* who) {
  TORCH_CHECK_VALUE(compression_level >= 0 && compression_level <= 9, "Compression level should be between 0 and 9");
  return encode_planes(image, who, [compression_level](const files::ImageView& view) {
    return files::encode_png(view, static_cast<int>(compression_level));
  });
}

void write_image_file(const std::string& path, const std::string& bytes) {
  const base::Fd file = comm::or_throw(base::open_regular_file(path, O_WRONLY | O_CREAT | O_TRUNC, kImageFileMode),
                                       "cannot write \"" + path + "\"");
  comm::or_throw(base::write_all(file.get(), bytes, path));
}

}  // namespace

at::Tensor decode_image(const at::Tensor& encoded, ImageReadMode mode, const DecodeImageOptions& options) {
  TORCH_CHECK_TYPE(encoded.defined() && encoded.dim() == 1 && encoded.is_cpu() && encoded.scalar_type() == at::kByte,
                   "[cohort] decode_image needs the bytes of a file, uint8 [size] on the CPU");
  const at::Tensor bytes = encoded.contiguous();
  return decode_bytes(
      "the given bytes",
      {reinterpret_cast<const char*>(bytes.const_data_ptr<uint8_t>()), static_cast<size_t>(bytes.numel())}, mode,
      options);
}

at::Tensor read_image(const std::string& path, ImageReadMode mode, const DecodeImageOptions& options) {
  const std::string bytes = comm::or_throw(base::read_file(path, kMaxImageFile));
  return decode_bytes(path, bytes, mode, options);
}

at::Tensor encode_jpeg(const at::Tensor& image, int64_t quality) {
  return tensor_of_bytes(jpeg_bytes(image, quality, "encode_jpeg"));
}

at::Tensor encode_png(const at::Tensor& image, int64_t compression_level) {
  return tensor_of_bytes(png_bytes(image, compression_level, "encode_png"));
}

void write_jpeg(const at::Tensor& image, const std::string& path, int64_t quality) {
  write_image_file(path, jpeg_bytes(image, quality, "write_jpeg"));
}

void write_png(const at::Tensor& image, const std::string& path, int64_t compression_level) {
  write_image_file(path, png_bytes(image, compression_level, "write_png"));
}

}  // namespace cohort::data
