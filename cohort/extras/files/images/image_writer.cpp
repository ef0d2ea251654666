// [Note: longjmp] in jpeg_decoder.cpp applies here, too.
#include "cohort/extras/files/images/image_writer.h"

#include <fmt/format.h>

#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <jpeglib.h>
#include <png.h>

#include <jerror.h>

namespace cohort::files {
namespace {

// Returns row y of an image with interleaved channels; copies them to `row` if they are in planes.
const uint8_t* interleaved_row(const ImageView& image, size_t y, std::vector<uint8_t>& row) {
  const auto [height, width, channels] = image.shape;
  if (image.layout == ImageLayout::kInterleaved) return image.pixels + y * width * channels;
  for (size_t c = 0; c < channels; ++c) {
    const uint8_t* from = image.pixels + (c * height + y) * width;
    for (size_t x = 0; x < width; ++x) row[x * channels + c] = from[x];
  }
  return row.data();
}

base::Result<void> check_encodable(const ImageView& image, const char* format, uint32_t max_side) {
  const auto [height, width, channels] = image.shape;
  if (height > 0 && width > 0 && height <= max_side && width <= max_side) return {};
  return base::Error(fmt::format("cannot write an image of {} x {} pixels as {}: each side must be 1 to {}", height,
                                 width, format, max_side));
}

// A std::vector would throw without memory, and exceptions must not pass through C libraries.
struct OutputBytes {
  unsigned char* data = nullptr;
  size_t size = 0;
  size_t capacity = 0;

  OutputBytes() = default;
  OutputBytes(const OutputBytes&) = delete;
  OutputBytes& operator=(const OutputBytes&) = delete;
  ~OutputBytes() { std::free(data); }

  /// Makes room for this many more bytes. Returns false without memory.
  bool reserve(size_t num_more) {
    if (num_more <= capacity - size) return true;
    const size_t new_capacity = 2 * capacity + num_more;
    void* const moved = std::realloc(data, new_capacity);
    if (!moved) return false;
    data = static_cast<unsigned char*>(moved);
    capacity = new_capacity;
    return true;
  }
  std::string text() const { return {reinterpret_cast<const char*>(data), size}; }
};

struct JpegWriter {
  jpeg_compress_struct jpeg{};
  jpeg_error_mgr errors{};
  jpeg_destination_mgr destination{};
  jmp_buf jump;
  char text[JMSG_LENGTH_MAX] = {};
  OutputBytes output;
  std::vector<uint8_t> row;

  ~JpegWriter() { jpeg_destroy_compress(&jpeg); }
  static JpegWriter& of(j_common_ptr common) { return *static_cast<JpegWriter*>(common->client_data); }
  static JpegWriter& of(j_compress_ptr jpeg) { return *static_cast<JpegWriter*>(jpeg->client_data); }
  /// Lets libjpeg append to the existing bytes.
  static void give_room(j_compress_ptr jpeg);
  static boolean take_full_buffer(j_compress_ptr jpeg);
  static void take_rest(j_compress_ptr jpeg);
  bool run(const ImageView& image, const JpegOptions& options);
  void write(const ImageView& image, const JpegOptions& options);
};

void JpegWriter::give_room(j_compress_ptr jpeg) {
  constexpr size_t kChunk = 4096;
  OutputBytes& output = of(jpeg).output;
  if (!output.reserve(kChunk)) ERREXIT1(jpeg, JERR_OUT_OF_MEMORY, 10);
  jpeg->dest->next_output_byte = output.data + output.size;
  jpeg->dest->free_in_buffer = output.capacity - output.size;
}

boolean JpegWriter::take_full_buffer(j_compress_ptr jpeg) {
  of(jpeg).output.size = of(jpeg).output.capacity;
  give_room(jpeg);
  return TRUE;
}

void JpegWriter::take_rest(j_compress_ptr jpeg) {
  of(jpeg).output.size = of(jpeg).output.capacity - jpeg->dest->free_in_buffer;
}

void JpegWriter::write(const ImageView& image, const JpegOptions& options) {
  const bool is_gray = image.shape.channels == 1;
  jpeg_create_compress(&jpeg);
  destination.init_destination = give_room;
  destination.empty_output_buffer = take_full_buffer;
  destination.term_destination = take_rest;
  jpeg.dest = &destination;
  jpeg.image_width = image.shape.width;
  jpeg.image_height = image.shape.height;
  jpeg.input_components = static_cast<int>(image.shape.channels);
  jpeg.in_color_space = is_gray ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, options.quality, TRUE);
  if (!is_gray) {
    jpeg.comp_info[0].h_samp_factor = options.subsampling == JpegSubsampling::k444 ? 1 : 2;
    jpeg.comp_info[0].v_samp_factor = options.subsampling == JpegSubsampling::k420 ? 2 : 1;
  }
  if (options.progressive) jpeg_simple_progression(&jpeg);
  jpeg_start_compress(&jpeg, TRUE);
  for (size_t y = 0; y < image.shape.height; ++y) {
    JSAMPROW place = const_cast<JSAMPROW>(interleaved_row(image, y, row));
    jpeg_write_scanlines(&jpeg, &place, 1);
  }
  jpeg_finish_compress(&jpeg);
}

bool JpegWriter::run(const ImageView& image, const JpegOptions& options) {
  row.resize(size_t{image.shape.width} * image.shape.channels);
  jpeg.client_data = this;
  jpeg.err = jpeg_std_error(&errors);
  errors.output_message = [](j_common_ptr) {};
  errors.error_exit = [](j_common_ptr common) {
    JpegWriter& writer = of(common);
    common->err->format_message(common, writer.text);
    longjmp(writer.jump, 1);
  };
  if (setjmp(jump)) return false;
  write(image, options);
  return true;
}

struct PngWriter {
  png_structp png = nullptr;
  png_infop info = nullptr;
  jmp_buf jump;
  char text[200] = {};
  OutputBytes output;
  std::vector<uint8_t> row;

  ~PngWriter() { png_destroy_write_struct(&png, &info); }
  bool run(const ImageView& image, int compression_level);
  void write(const ImageView& image, int compression_level);
  [[noreturn]] static void fail(png_structp png, png_const_charp text);
  static void append(png_structp png, png_bytep data, size_t size);
};

void PngWriter::fail(png_structp png, png_const_charp text) {
  auto& writer = *static_cast<PngWriter*>(png_get_error_ptr(png));
  std::snprintf(writer.text, sizeof(writer.text), "%s", text);
  longjmp(writer.jump, 1);
}

void PngWriter::append(png_structp png, png_bytep data, size_t size) {
  OutputBytes& output = static_cast<PngWriter*>(png_get_io_ptr(png))->output;
  if (!output.reserve(size)) png_error(png, "no memory");
  std::memcpy(output.data + output.size, data, size);
  output.size += size;
}

void PngWriter::write(const ImageView& image, int compression_level) {
  constexpr int kColorTypes[] = {PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA, PNG_COLOR_TYPE_RGB,
                                 PNG_COLOR_TYPE_RGB_ALPHA};
  png_set_write_fn(png, this, append, nullptr);
  png_set_compression_level(png, compression_level);
  png_set_IHDR(png, info, image.shape.width, image.shape.height, 8, kColorTypes[image.shape.channels - 1],
               PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_write_info(png, info);
  for (size_t y = 0; y < image.shape.height; ++y) png_write_row(png, interleaved_row(image, y, row));
  png_write_end(png, info);
}

bool PngWriter::run(const ImageView& image, int compression_level) {
  row.resize(size_t{image.shape.width} * image.shape.channels);
  png = png_create_write_struct(PNG_LIBPNG_VER_STRING, this, fail, [](png_structp, png_const_charp) {});
  info = png ? png_create_info_struct(png) : nullptr;
  if (!info) {
    std::snprintf(text, sizeof(text), "libpng could not start");
    return false;
  }
  if (setjmp(jump)) return false;
  write(image, compression_level);
  return true;
}

}  // namespace

base::Result<std::string> encode_jpeg(const ImageView& image, const JpegOptions& options) {
  if (auto ok = check_encodable(image, "JPEG", JPEG_MAX_DIMENSION); !ok) return ok.error();
  if (image.shape.channels != 1 && image.shape.channels != 3) {
    return base::Error(
        fmt::format("cannot write an image of {} channels as JPEG: it must have 1 or 3", image.shape.channels));
  }
  if (options.quality < 1 || options.quality > 100) {
    return base::Error(fmt::format("the quality of a JPEG must be 1 to 100, but is {}", options.quality));
  }
  JpegWriter writer;
  if (!writer.run(image, options)) return base::Error(fmt::format("cannot write a JPEG: {}", writer.text));
  return writer.output.text();
}

base::Result<std::string> encode_png(const ImageView& image, int compression_level) {
  if (auto ok = check_encodable(image, "PNG", 1'000'000); !ok) return ok.error();
  if (image.shape.channels < 1 || image.shape.channels > 4) {
    return base::Error(
        fmt::format("cannot write an image of {} channels as PNG: it must have 1 to 4", image.shape.channels));
  }
  if (compression_level < 0 || compression_level > 9) {
    return base::Error(fmt::format("the compression level of a PNG must be 0 to 9, but is {}", compression_level));
  }
  PngWriter writer;
  if (!writer.run(image, compression_level)) return base::Error(fmt::format("cannot write a PNG: {}", writer.text));
  return writer.output.text();
}

}  // namespace cohort::files
