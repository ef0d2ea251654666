// [Note: longjmp] libjpeg and libpng report errors by calling a function that must not return. Ours jumps back to guarded(), over
// frames of C and of one lambda. So lambdas in guarded() must have no objects with destructors; they may change only the decoder.
// The same holds for callbacks of the libraries.
#include <fmt/format.h>

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include <jpeglib.h>

#include <jerror.h>

#include "cohort/extras/files/images/exif.h"
#include "cohort/extras/files/images/image_decoder.h"
#include "cohort/extras/files/images/pixel_rows.h"

namespace cohort::files::detail {
namespace {

// A progressive file may have any number of scans, and each scan covers the whole image. Real files have about ten.
constexpr int kMaxScans = 100;
// In addition to the coefficients, which progressive files keep: two bytes for each of up to four channels.
constexpr uint64_t kJpegMemory = uint64_t{64} << 20;
constexpr uint64_t kJpegMemoryPerPixel = 8;

// libjpeg sees the first member as its error manager.
struct JpegErrors {
  jpeg_error_mgr base;
  jmp_buf jump;
  char text[JMSG_LENGTH_MAX];
  bool is_end;
};

JpegErrors& errors_of(j_common_ptr jpeg) { return *reinterpret_cast<JpegErrors*>(jpeg->err); }

[[noreturn]] void fail_jpeg(j_common_ptr jpeg) {
  JpegErrors& errors = errors_of(jpeg);
  errors.base.format_message(jpeg, errors.text);
  longjmp(errors.jump, 1);
}

[[noreturn]] void fail_at_end(j_decompress_ptr jpeg) {
  errors_of(reinterpret_cast<j_common_ptr>(jpeg)).is_end = true;
  longjmp(errors_of(reinterpret_cast<j_common_ptr>(jpeg)).jump, 1);
}

boolean no_more_input(j_decompress_ptr jpeg) { fail_at_end(jpeg); }

void skip_input(j_decompress_ptr jpeg, long num_bytes) {
  if (num_bytes <= 0) return;
  if (static_cast<size_t>(num_bytes) > jpeg->src->bytes_in_buffer) fail_at_end(jpeg);
  jpeg->src->next_input_byte += num_bytes;
  jpeg->src->bytes_in_buffer -= static_cast<size_t>(num_bytes);
}

void check_num_scans(j_common_ptr jpeg) {
  if (reinterpret_cast<j_decompress_ptr>(jpeg)->input_scan_number <= kMaxScans) return;
  std::snprintf(errors_of(jpeg).text, JMSG_LENGTH_MAX, "more than %d scans", kMaxScans);
  longjmp(errors_of(jpeg).jump, 1);
}

class JpegDecoder final : public ImageDecoder {
 public:
  JpegDecoder(const InputFile& file, const ImageOptions& options) : file_(file), options_(options) {}
  ~JpegDecoder() override { jpeg_destroy_decompress(&jpeg_); }

  base::Result<void> open();
  ImageShape shape() const override { return RowSink::turned(decoded_, orientation_); }
  base::Result<void> read(uint8_t* pixels, ImageLayout layout) override;

 private:
  // Returns false after an error, see error().
  template <typename Fn>
  bool guarded(Fn fn) {
    errors_.text[0] = 0;
    errors_.is_end = false;
    if (setjmp(errors_.jump)) return false;
    fn();
    return true;
  }
  base::Error error() const;
  base::Result<void> check_size() const;
  void start();
  void choose_output();
  void read_orientation();
  void read_rows(RowSink& sink);

  const InputFile& file_;
  ImageOptions options_;
  jpeg_decompress_struct jpeg_{};
  JpegErrors errors_{};
  jpeg_source_mgr source_{};
  jpeg_progress_mgr progress_{};
  ImageShape decoded_;
  int orientation_ = 1;
  std::vector<uint8_t> row_;
  std::vector<uint8_t> converted_;
};

base::Error JpegDecoder::error() const {
  const uint64_t offset = file_.size() - source_.bytes_in_buffer;
  if (errors_.is_end) return file_.error_at(file_.size(), "the rest of the JPEG", "the end of the file");
  return file_.error_at(offset, "a JPEG that libjpeg can decode", errors_.text);
}

void JpegDecoder::start() {
  jpeg_create_decompress(&jpeg_);
  source_.next_input_byte = reinterpret_cast<const JOCTET*>(file_.bytes().data());
  source_.bytes_in_buffer = file_.size();
  source_.init_source = [](j_decompress_ptr) {};
  source_.fill_input_buffer = no_more_input;
  source_.skip_input_data = skip_input;
  source_.resync_to_restart = jpeg_resync_to_restart;
  source_.term_source = [](j_decompress_ptr) {};
  jpeg_.src = &source_;
  progress_.progress_monitor = check_num_scans;
  jpeg_.progress = &progress_;
  if (options_.apply_exif_orientation) jpeg_save_markers(&jpeg_, JPEG_APP0 + 1, 0xFFFF);
  jpeg_read_header(&jpeg_, TRUE);
}

// A block of pixels takes at least one bit, unless the file uses arithmetic coding.
base::Result<void> JpegDecoder::check_size() const {
  const uint64_t num_pixels = uint64_t{jpeg_.image_width} * jpeg_.image_height;
  const uint64_t offset = file_.size() - source_.bytes_in_buffer;
  if (auto is_small = check_num_pixels(file_, offset, num_pixels, options_.max_pixels); !is_small) return is_small;
  uint64_t num_blocks = 0;
  for (int i = 0; i < jpeg_.num_components; ++i) {
    num_blocks += uint64_t{jpeg_.comp_info[i].width_in_blocks} * jpeg_.comp_info[i].height_in_blocks;
  }
  if (jpeg_.arith_code || num_blocks / 8 <= source_.bytes_in_buffer) return {};
  return file_.error_at(
      offset,
      fmt::format("at least {} bytes for {} x {} pixels", num_blocks / 8, jpeg_.image_height, jpeg_.image_width),
      fmt::format("{} before the end of the file", source_.bytes_in_buffer));
}

void JpegDecoder::choose_output() {
  const bool is_gray = jpeg_.num_components == 1;
  const bool is_cmyk = jpeg_.num_components == 4;
  decoded_.channels = channels_of(options_.mode, is_gray ? 1 : 3);
  jpeg_.mem->max_memory_to_use = static_cast<long>(
      kJpegMemory + kJpegMemoryPerPixel * (uint64_t{jpeg_.image_width} + 64) * (uint64_t{jpeg_.image_height} + 64));
  jpeg_.scale_denom = 8;
  const auto fits = [&](unsigned scale) {
    return (uint64_t{std::min(jpeg_.image_width, jpeg_.image_height)} * scale + 7) / 8 >= options_.min_side;
  };
  // libjpeg-turbo has fast code for 8, 4, 2 and 1 eighths; 5 to 7 eighths would take longer than the full size.
  jpeg_.scale_num = 8;
  while (options_.min_side > 0 && jpeg_.scale_num > 1 && fits(jpeg_.scale_num / 2)) jpeg_.scale_num /= 2;
  if (is_cmyk) {
    jpeg_.out_color_space = JCS_CMYK;
  } else if (is_gray || decoded_.channels <= 2) {
    jpeg_.out_color_space = JCS_GRAYSCALE;
  } else {
    jpeg_.out_color_space = JCS_RGB;
  }
  jpeg_calc_output_dimensions(&jpeg_);
  decoded_.width = jpeg_.output_width;
  decoded_.height = jpeg_.output_height;
}

void JpegDecoder::read_orientation() {
  constexpr std::string_view kExif("Exif\0\0", 6);
  for (jpeg_saved_marker_ptr marker = jpeg_.marker_list; marker != nullptr; marker = marker->next) {
    const std::string_view data(reinterpret_cast<const char*>(marker->data), marker->data_length);
    if (!data.starts_with(kExif)) continue;
    orientation_ = exif_orientation(data.substr(kExif.size()));
    return;
  }
}

base::Result<void> JpegDecoder::open() {
  jpeg_.err = jpeg_std_error(&errors_.base);
  errors_.base.error_exit = fail_jpeg;
  // Warnings concern data that can be decoded nevertheless.
  errors_.base.emit_message = [](j_common_ptr, int) {};
  errors_.base.output_message = [](j_common_ptr) {};
  if (!guarded([this] { start(); })) return error();
  if (auto is_small = check_size(); !is_small) return is_small;
  if (!guarded([this] { choose_output(); })) return error();
  if (options_.apply_exif_orientation) read_orientation();
  return {};
}

void JpegDecoder::read_rows(RowSink& sink) {
  const uint32_t components = static_cast<uint32_t>(jpeg_.output_components);
  const bool is_cmyk = jpeg_.out_color_space == JCS_CMYK;
  // Splitting four bytes per pixel into planes is faster than three; the library fills the fourth one.
  const bool is_direct = !is_cmyk && (components == decoded_.channels || jpeg_.out_color_space == JCS_EXT_RGBX);
  while (jpeg_.output_scanline < jpeg_.output_height) {
    const size_t y = jpeg_.output_scanline;
    uint8_t* const place = is_direct && components == decoded_.channels ? sink.row(y) : nullptr;
    JSAMPROW row = place ? place : row_.data();
    if (jpeg_read_scanlines(&jpeg_, &row, 1) != 1) fail_at_end(&jpeg_);
    if (place) continue;
    if (is_direct) {
      sink.put(y, row, components);
      continue;
    }
    uint8_t* rgb = row_.data() + 4 * size_t{decoded_.width};
    if (is_cmyk) inverted_cmyk_to_rgb(row, rgb, decoded_.width);
    convert_row(is_cmyk ? rgb : row, is_cmyk ? 3 : components, converted_.data(), decoded_.channels, decoded_.width);
    sink.put(y, converted_.data(), decoded_.channels);
  }
  jpeg_finish_decompress(&jpeg_);
}

base::Result<void> JpegDecoder::read(uint8_t* pixels, ImageLayout layout) {
  if (layout == ImageLayout::kPlanes && decoded_.channels == 3 && jpeg_.out_color_space == JCS_RGB) {
    jpeg_.out_color_space = JCS_EXT_RGBX;
  }
  row_.resize(size_t{decoded_.width} * 7);
  converted_.resize(size_t{decoded_.width} * 4);
  RowSink sink(pixels, layout, decoded_, orientation_);
  const bool is_read = guarded([&] {
    jpeg_start_decompress(&jpeg_);
    read_rows(sink);
  });
  if (!is_read) return error();
  return {};
}

}  // namespace

base::Result<std::unique_ptr<ImageDecoder>> open_jpeg(const InputFile& file, const ImageOptions& options) {
  auto decoder = std::make_unique<JpegDecoder>(file, options);
  if (auto opened = decoder->open(); !opened) return opened.error();
  return std::unique_ptr<ImageDecoder>(std::move(decoder));
}

}  // namespace cohort::files::detail
