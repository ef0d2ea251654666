#include "cohort/files/tensors/safetensors/safetensors_file.h"

#include <sys/stat.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <span>
#include <utility>

#include "cohort/base/text/text.h"

namespace cohort::files {
namespace {

using base::Error;
using base::Result;

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

Result<RandomAccessFile> open_plain_file(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) {
    Error error(base::errno_text(errno));
    if (errno != ENOENT || path.starts_with('/')) return error;
    std::error_code ignored;
    return std::move(error).with_hint("the path is relative to \"" + std::filesystem::current_path(ignored).string() +
                                      "\"");
  }
  if (!S_ISREG(info.st_mode)) return Error("it is not a plain file");
  return RandomAccessFile::open(path);
}

Result<uint64_t> header_length(const RandomAccessFile& file) {
  if (file.size() < 8)
    return Error("it has only " + std::to_string(file.size()) + " bytes, fewer than the header's length");
  uint64_t length = 0;
  Result<void> done = file.read(0, {reinterpret_cast<char*>(&length), sizeof(length)}, "the header's length");
  if (!done) return done.error();
  if (std::memcmp(&length, "PK\3\4", 4) == 0) {
    return Error("it is a zip archive, as torch::save and torch.save write").with_hint("read it with torch::load");
  }
  if (length > kMaxSafetensorsHeaderBytes) {
    return Error("it claims a header of " + std::to_string(length) + " bytes, the format allows " +
                 std::to_string(kMaxSafetensorsHeaderBytes))
        .with_hint("check that this is a safetensors file");
  }
  if (length <= file.size() - 8) return length;
  return Error("it claims a header of " + std::to_string(length) + " bytes, but only " +
               std::to_string(file.size() - 8) + " follow");
}

}  // namespace

Result<SafetensorsFile> open_safetensors(const std::string& path) {
  Result<RandomAccessFile> file = open_plain_file(path);
  if (!file) return file.error();
  Result<uint64_t> length = header_length(*file);
  if (!length) return length.error();
  Result<std::string> text = file->read(8, *length, "the header");
  if (!text) return text.error();
  const uint64_t data_begin = 8 + *length;
  Result<SafetensorsHeader> header = parse_safetensors_header(*text, file->size() - data_begin);
  if (!header) return header.error();
  return SafetensorsFile{std::move(*file), std::move(*header), data_begin};
}

Result<std::string> safetensors_prefix(const SafetensorsHeader& header) {
  Result<std::string> text = format_safetensors_header(header);
  if (!text) return text.error();
  const uint64_t length = text->size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + *text;
}

}  // namespace cohort::files
