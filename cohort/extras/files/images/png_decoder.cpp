// [Note: longjmp] in jpeg_decoder.cpp applies here, too.
#include <fmt/format.h>
#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/extras/files/images/exif.h"
#include "cohort/extras/files/images/image_decoder.h"
#include "cohort/extras/files/images/pixel_rows.h"

namespace cohort::files::detail {
namespace {

// The offset of the sizes in the header.
constexpr uint64_t kPngSizeOffset = 16;
constexpr png_alloc_size_t kMaxChunkMemory = 8'000'000;
// zlib makes at most this many bytes from one.
constexpr uint64_t kMaxInflation = 1032;
// A chunk's size and name before its bytes, and their checksum after them.
constexpr uint64_t kChunkHead = 8;
constexpr uint64_t kChunkEnd = 4;
// Texts, profiles and similar chunks, which have no effect here, but would be unpacked into memory.
constexpr png_byte kIgnoredChunks[] = {'i', 'C', 'C', 'P', 0,   'i', 'T', 'X', 't', 0,   't', 'E', 'X', 't',
                                       0,   'z', 'T', 'X', 't', 0,   's', 'P', 'L', 'T', 0,   'h', 'I', 'S',
                                       'T', 0,   'p', 'C', 'A', 'L', 0,   's', 'C', 'A', 'L', 0};

// Checks that every chunk is complete in the file, as libpng allocates the memory that a chunk claims before it reads the chunk.
base::Result<void> check_chunks(const InputFile& file) {
  std::string_view name;
  for (uint64_t at = 8; name != "IEND";) {
    const auto head = file.take(at, kChunkHead, "the next chunk's head");
    if (!head) return head.error();
    uint64_t size = 0;
    for (const char byte : head->substr(0, 4)) size = size << 8 | static_cast<uint8_t>(byte);
    name = head->substr(4);
    const bool is_name = std::all_of(name.begin(), name.end(), [](char letter) {
      return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z');
    });
    if (!is_name) return file.error_at(at + 4, "four letters, the name of a chunk", "others");
    const auto rest = file.take(at + kChunkHead, size + kChunkEnd, fmt::format("the chunk {}", name));
    if (!rest) return rest.error();
    at += kChunkHead + size + kChunkEnd;
  }
  return {};
}

class PngDecoder final : public ImageDecoder {
 public:
  PngDecoder(const InputFile& file, const ImageOptions& options) : file_(file), options_(options) {}
  ~PngDecoder() override { png_destroy_read_struct(&png_, &info_, nullptr); }

  base::Result<void> open();
  ImageShape shape() const override { return RowSink::turned(decoded_, orientation_); }
  base::Result<void> read(uint8_t* pixels, ImageLayout layout) override;

 private:
  template <typename Fn>
  bool guarded(Fn fn) {
    text_[0] = 0;
    is_end_ = false;
    if (setjmp(jump_)) return false;
    fn();
    return true;
  }
  [[noreturn]] static void fail(png_structp png, png_const_charp text);
  static void ignore_warning(png_structp, png_const_charp) {}
  static void take_input(png_structp png, png_bytep to, size_t size);

  base::Error error() const;
  base::Result<void> check_size() const;
  void choose_output();
  void read_orientation();
  void read_rows(RowSink& sink);
  void put_row(RowSink& sink, size_t y, const uint8_t* row);

  const InputFile& file_;
  ImageOptions options_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  jmp_buf jump_;
  char text_[200] = {};
  bool is_end_ = false;
  size_t offset_ = 0;
  ImageShape decoded_;
  // The number of channels in libpng's rows.
  uint32_t row_channels_ = 0;
  int orientation_ = 1;
  // One row, or all rows of an interlaced image.
  std::vector<uint8_t> rows_;
  std::vector<uint8_t> converted_;
};

void PngDecoder::fail(png_structp png, png_const_charp text) {
  auto& decoder = *static_cast<PngDecoder*>(png_get_error_ptr(png));
  std::snprintf(decoder.text_, sizeof(decoder.text_), "%s", text);
  longjmp(decoder.jump_, 1);
}

void PngDecoder::take_input(png_structp png, png_bytep to, size_t size) {
  auto& decoder = *static_cast<PngDecoder*>(png_get_io_ptr(png));
  if (size > decoder.file_.size() - decoder.offset_) {
    decoder.is_end_ = true;
    png_error(png, "end of file");
  }
  std::memcpy(to, decoder.file_.bytes().data() + decoder.offset_, size);
  decoder.offset_ += size;
}

base::Error PngDecoder::error() const {
  if (is_end_) return file_.error_at(file_.size(), "the rest of the PNG", "the end of the file");
  return file_.error_at(offset_, "a PNG that libpng can decode", text_);
}

base::Result<void> PngDecoder::check_size() const {
  const uint64_t width = png_get_image_width(png_, info_);
  const uint64_t height = png_get_image_height(png_, info_);
  if (auto ok = check_num_pixels(file_, kPngSizeOffset, width * height, options_.max_pixels); !ok) return ok;
  const uint64_t num_bytes = (png_get_rowbytes(png_, info_) + 1) * height;
  if (num_bytes / kMaxInflation <= file_.size() - offset_) return {};
  return file_.error_at(offset_,
                        fmt::format("at least {} bytes for {} x {} pixels", num_bytes / kMaxInflation, height, width),
                        fmt::format("{} before the end of the file", file_.size() - offset_));
}

// Converts every kind of file to 8 bits of gray or RGB, with alpha if it is wanted.
void PngDecoder::choose_output() {
  const int color_type = png_get_color_type(png_, info_);
  const bool has_transparency = png_get_valid(png_, info_, PNG_INFO_tRNS) != 0;
  const bool wants_alpha = options_.mode == ImageMode::kUnchanged || options_.mode == ImageMode::kGrayAlpha ||
                           options_.mode == ImageMode::kRgbAlpha;
  png_set_strip_16(png_);
  if (color_type == PNG_COLOR_TYPE_PALETTE) {
    png_set_palette_to_rgb(png_);
    if (!wants_alpha) png_set_strip_alpha(png_);
  } else {
    png_set_expand_gray_1_2_4_to_8(png_);
    if (has_transparency && wants_alpha) png_set_tRNS_to_alpha(png_);
    if (!wants_alpha) png_set_strip_alpha(png_);
  }
  // Splitting four bytes per pixel into planes is faster than three.
  if (options_.mode == ImageMode::kRgb && (color_type & PNG_COLOR_MASK_COLOR)) {
    png_set_filler(png_, 255, PNG_FILLER_AFTER);
  }
  png_set_interlace_handling(png_);
  png_read_update_info(png_, info_);
  row_channels_ = png_get_channels(png_, info_);
  decoded_.width = png_get_image_width(png_, info_);
  decoded_.height = png_get_image_height(png_, info_);
  decoded_.channels = channels_of(options_.mode, row_channels_);
}

void PngDecoder::read_orientation() {
  png_uint_32 size = 0;
  png_bytep data = nullptr;
  if (!options_.apply_exif_orientation || !png_get_eXIf_1(png_, info_, &size, &data)) return;
  orientation_ = exif_orientation({reinterpret_cast<const char*>(data), size});
}

base::Result<void> PngDecoder::open() {
  if (auto are_whole = check_chunks(file_); !are_whole) return are_whole;
  png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, fail, ignore_warning);
  info_ = png_ ? png_create_info_struct(png_) : nullptr;
  if (!info_) return base::Error(fmt::format("cannot read \"{}\": libpng could not start", file_.path()));
  const bool has_header = guarded([this] {
    png_set_read_fn(png_, this, take_input);
    png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
    png_set_chunk_malloc_max(png_, kMaxChunkMemory);
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, kIgnoredChunks,
                                static_cast<int>(std::size(kIgnoredChunks) / 5));
    png_read_info(png_, info_);
  });
  if (!has_header) return error();
  if (auto is_small = check_size(); !is_small) return is_small;
  if (!guarded([this] { read_orientation(), choose_output(); })) return error();
  return {};
}

void PngDecoder::put_row(RowSink& sink, size_t y, const uint8_t* row) {
  const bool is_direct = row_channels_ == decoded_.channels || (row_channels_ == 4 && decoded_.channels == 3);
  if (is_direct) return sink.put(y, row, row_channels_);
  convert_row(row, row_channels_, converted_.data(), decoded_.channels, decoded_.width);
  sink.put(y, converted_.data(), decoded_.channels);
}

void PngDecoder::read_rows(RowSink& sink) {
  const size_t row_size = png_get_rowbytes(png_, info_);
  const bool is_interlaced = rows_.size() > row_size;
  const int num_passes = is_interlaced ? 7 : 1;
  for (int pass = 0; pass < num_passes; ++pass) {
    for (size_t y = 0; y < decoded_.height; ++y) {
      uint8_t* const row = rows_.data() + (is_interlaced ? y * row_size : 0);
      png_read_row(png_, row, nullptr);
      if (pass == num_passes - 1) put_row(sink, y, row);
    }
  }
  png_read_end(png_, nullptr);
}

base::Result<void> PngDecoder::read(uint8_t* pixels, ImageLayout layout) {
  const bool is_interlaced = png_get_interlace_type(png_, info_) != PNG_INTERLACE_NONE;
  rows_.resize(png_get_rowbytes(png_, info_) * (is_interlaced ? decoded_.height : 1));
  converted_.resize(size_t{decoded_.width} * 4);
  RowSink sink(pixels, layout, decoded_, orientation_);
  if (!guarded([&] { read_rows(sink); })) return error();
  return {};
}

}  // namespace

base::Result<std::unique_ptr<ImageDecoder>> open_png(const InputFile& file, const ImageOptions& options) {
  auto decoder = std::make_unique<PngDecoder>(file, options);
  if (auto opened = decoder->open(); !opened) return opened.error();
  return std::unique_ptr<ImageDecoder>(std::move(decoder));
}

}  // namespace cohort::files::detail
