#include "cohort/extras/files/arrays/idx.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "cohort/extras/files/arrays/gzip_stream.h"

namespace cohort::files {
namespace {

constexpr size_t kIdxMagicBytes = 4;
constexpr size_t kBytesPerLength = 4;

// Fills the span with the next bytes of the file.
using IdxBytes = std::function<base::Result<void>(std::span<char>, std::string_view)>;

std::optional<DType> idx_dtype(uint8_t code) {
  switch (code) {
    case 0x08:
      return DType::kUInt8;
    case 0x09:
      return DType::kInt8;
    case 0x0B:
      return DType::kInt16;
    case 0x0C:
      return DType::kInt32;
    case 0x0D:
      return DType::kFloat32;
    case 0x0E:
      return DType::kFloat64;
    default:
      return std::nullopt;
  }
}

base::Result<ArrayLayout> read_idx_header(const RandomAccessFile& file, const IdxBytes& next) {
  std::array<char, kIdxMagicBytes> magic{};
  if (auto done = next(magic, "an IDX header"); !done) return done.error();
  if (magic[0] != 0 || magic[1] != 0) {
    return file.error_at(
        0, "two zero bytes, with which an IDX file begins",
        fmt::format("{:#04x} {:#04x}", static_cast<uint8_t>(magic[0]), static_cast<uint8_t>(magic[1])));
  }
  const auto dtype = idx_dtype(static_cast<uint8_t>(magic[2]));
  if (!dtype) {
    return file.error_at(2, "a type of elements of IDX (0x08, 0x09, 0x0B, 0x0C, 0x0D or 0x0E)",
                         fmt::format("{:#04x}", static_cast<uint8_t>(magic[2])));
  }
  ArrayLayout layout{.dtype = *dtype, .is_big_endian = true};
  std::string lengths(static_cast<uint8_t>(magic[3]) * kBytesPerLength, '\0');
  if (auto done = next(lengths, "lengths of dimensions"); !done) return done.error();
  for (size_t at = 0; at < lengths.size(); at += kBytesPerLength) {
    uint32_t length = 0;
    for (size_t i = 0; i < kBytesPerLength; ++i) length = length << 8 | static_cast<uint8_t>(lengths[at + i]);
    layout.shape.push_back(length);
  }
  layout.offset = kIdxMagicBytes + lengths.size();
  const auto num_bytes = num_bytes_of(layout.dtype, layout.shape);
  if (!num_bytes) {
    return file.error_at(kIdxMagicBytes, "lengths of an array", fmt::format("{}", fmt::join(layout.shape, " x ")));
  }
  layout.num_bytes = *num_bytes;
  return layout;
}

std::string idx_described(const ArrayLayout& layout) {
  return fmt::format("{} bytes of {} elements, as its header says [{}]", layout.num_bytes, name_of(layout.dtype),
                     fmt::join(layout.shape, ", "));
}

base::Result<ArrayData> read_packed_idx(const RandomAccessFile& file) {
  GzipStream stream(file);
  auto layout = read_idx_header(file, [&](std::span<char> to, std::string_view what) { return stream.read(to, what); });
  if (!layout) return layout.error();
  if (layout->num_bytes / kMostDeflated > file.size()) {
    return file.error_at(0, idx_described(*layout), fmt::format("a packed file of only {} bytes", file.size()));
  }
  auto bytes = std::make_unique_for_overwrite<char[]>(layout->num_bytes);
  if (auto done = stream.read(std::span(bytes.get(), layout->num_bytes), "elements"); !done) return done.error();
  if (auto ended = stream.expect_end(); !ended) return ended.error();
  return take_array(*layout, std::move(bytes));
}

}  // namespace

base::Result<ArrayData> read_idx(const RandomAccessFile& file) {
  if (GzipStream::is_gzip(file)) return read_packed_idx(file);
  uint64_t position = 0;
  auto layout = read_idx_header(file, [&](std::span<char> to, std::string_view what) {
    position += to.size();
    return file.read(position - to.size(), to, what);
  });
  if (!layout) return layout.error();
  if (layout->num_bytes != file.size() - layout->offset) {
    return file.error_at(layout->offset, idx_described(*layout),
                         fmt::format("{} before the end of the file", file.size() - layout->offset));
  }
  return read_array(file, *layout);
}

base::Result<ArrayData> read_idx(const std::string& path) {
  auto file = RandomAccessFile::open(path);
  if (!file) return file.error();
  return read_idx(*file);
}

}  // namespace cohort::files
