// Answers each line of standard input on standard output by a line, after "ok" with bytes behind it, or by "error" and its text:
//   decode MODE MIN_SIDE EXIF LAYOUT PATH                 -> ok CHANNELS HEIGHT WIDTH, and the pixels
//   resample FILTER CHANNELS HEIGHT WIDTH TO_HEIGHT TO_WIDTH TOP LEFT WINDOW_HEIGHT WINDOW_WIDTH PATH
//                                                         -> the same, of planes in the file of bytes PATH
//   encode FORMAT CHANNELS HEIGHT WIDTH PATH              -> ok SIZE, and the file, of planes in the file PATH
//   list ALLOW_EMPTY PATH                                 -> ok SIZE, and a text: the classes, then a line for each sample
#include <cstdint>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "cohort/base/file/file.h"
#include "cohort/extras/files/images/image_folder_index.h"
#include "cohort/extras/files/images/image_reader.h"
#include "cohort/extras/files/images/image_writer.h"
#include "cohort/extras/files/images/resample.h"

namespace {

using namespace cohort;

struct Request {
  std::istringstream words;
  template <typename T>
  T next() {
    T value{};
    if (!(words >> value)) throw std::runtime_error("a word is missing: " + words.str());
    return value;
  }
  std::string path() {
    std::string rest;
    std::getline(words >> std::ws, rest);
    return rest;
  }
};

void give(const std::string& head, const void* bytes, size_t size) {
  std::cout << "ok " << head << '\n';
  std::cout.write(static_cast<const char*>(bytes), static_cast<std::streamsize>(size));
}

void give_error(const base::Error& error) {
  std::string text = error.describe();
  for (char& letter : text) letter = letter == '\n' ? '|' : letter;
  std::cout << "error " << text << '\n';
}

std::string shape_text(size_t channels, size_t height, size_t width) {
  return std::to_string(channels) + ' ' + std::to_string(height) + ' ' + std::to_string(width);
}

void decode(Request& request) {
  files::ImageOptions options;
  options.mode = static_cast<files::ImageMode>(request.next<int>());
  options.min_side = request.next<uint32_t>();
  options.apply_exif_orientation = request.next<bool>();
  const auto layout = static_cast<files::ImageLayout>(request.next<int>());
  const std::string path = request.path();
  const auto bytes = base::read_file(path);
  if (!bytes) return give_error(bytes.error());
  const auto file = files::InputFile::view(path, *bytes);
  auto reader = files::ImageReader::open(file, options);
  if (!reader) return give_error(reader.error());
  const auto shape = reader->shape();
  std::vector<uint8_t> pixels(shape.num_bytes());
  if (const auto done = reader->read(pixels.data(), layout); !done) return give_error(done.error());
  give(shape_text(shape.channels, shape.height, shape.width), pixels.data(), pixels.size());
}

void resample(Request& request) {
  const auto filter =
      request.next<std::string>() == "bicubic" ? files::ResampleFilter::kBicubic : files::ResampleFilter::kBilinear;
  files::PlanesView view{};
  view.channels = request.next<size_t>();
  view.height = request.next<size_t>();
  view.width = request.next<size_t>();
  view.row_stride = static_cast<ptrdiff_t>(view.width);
  view.channel_stride = static_cast<ptrdiff_t>(view.width * view.height);
  files::ResampleTarget target{};
  for (size_t* field : {&target.height, &target.width, &target.window_top, &target.window_left, &target.window_height,
                        &target.window_width}) {
    *field = request.next<size_t>();
  }
  const auto bytes = base::read_file(request.path());
  if (!bytes) return give_error(bytes.error());
  view.pixels = reinterpret_cast<const uint8_t*>(bytes->data());
  std::vector<uint8_t> result(view.channels * target.window_height * target.window_width);
  files::resample(view, target, filter, result.data());
  give(shape_text(view.channels, target.window_height, target.window_width), result.data(), result.size());
}

void encode(Request& request) {
  const auto format = request.next<std::string>();
  files::ImageShape shape;
  shape.channels = request.next<uint32_t>();
  shape.height = request.next<uint32_t>();
  shape.width = request.next<uint32_t>();
  const auto bytes = base::read_file(request.path());
  if (!bytes) return give_error(bytes.error());
  const files::ImageView view{reinterpret_cast<const uint8_t*>(bytes->data()), shape, files::ImageLayout::kPlanes};
  const auto file = format == "jpeg" ? files::encode_jpeg(view) : files::encode_png(view);
  if (!file) return give_error(file.error());
  give(std::to_string(file->size()), file->data(), file->size());
}

void list(Request& request) {
  files::ImageFolderIndexOptions options;
  options.allow_empty = request.next<bool>();
  const auto index = files::index_image_folder(request.path(), options);
  if (!index) return give_error(index.error());
  std::string text;
  for (const auto& name : index->classes) text += name + '\n';
  for (const auto& [path, label] : index->samples) text += std::to_string(label) + ' ' + path + '\n';
  give(std::to_string(text.size()), text.data(), text.size());
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    Request request{std::istringstream(line)};
    const auto what = request.next<std::string>();
    if (what == "decode") {
      decode(request);
    } else if (what == "resample") {
      resample(request);
    } else if (what == "encode") {
      encode(request);
    } else {
      list(request);
    }
    std::cout.flush();
  }
}
