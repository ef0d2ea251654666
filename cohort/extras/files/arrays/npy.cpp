#include "cohort/extras/files/arrays/npy.h"

#include <fmt/format.h>

#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "cohort/base/file/atomic_file.h"
#include "cohort/extras/files/arrays/npy_header.h"

namespace cohort::files {
namespace {

constexpr std::string_view kNpyMagic("\x93NUMPY", 6);
constexpr size_t kNpyAlignment = 64;

uint64_t little_endian(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[i]);
  return value;
}

}  // namespace

base::Result<ArrayLayout> read_npy_layout(const RandomAccessFile& head, uint64_t size) {
  auto start = head.read(0, kNpyMagic.size() + 2, "the beginning of a .npy file");
  if (!start) return start.error();
  if (!start->starts_with(kNpyMagic)) {
    return head.error_at(0, "\\x93NUMPY, with which a .npy file begins", "other bytes");
  }
  const auto version = static_cast<uint8_t>((*start)[6]);
  if (version < 1 || version > 3 || (*start)[7] != 0) {
    return head.error_at(6, "version 1.0, 2.0 or 3.0 of the format",
                         fmt::format("version {}.{}", version, static_cast<uint8_t>((*start)[7])));
  }
  const uint64_t begin = version == 1 ? 10 : 12;
  auto length = head.read(8, begin - 8, "the header's length");
  if (!length) return length.error();
  const uint64_t num_header_bytes = little_endian(*length);
  if (num_header_bytes > kMaxNpyHeader) {
    return head.error_at(8, fmt::format("a header of at most {} bytes", kMaxNpyHeader),
                         fmt::format("one of {}", num_header_bytes));
  }
  auto text = head.read(begin, num_header_bytes, "header");
  if (!text) return text.error();
  auto parsed = parse_npy_header(*text);
  if (!parsed) {
    const NpyFault& fault = parsed.fault();
    return head.error_at(begin + fault.position, fault.expected, fault.found);
  }
  ArrayLayout layout = parsed.layout();
  layout.offset = begin + num_header_bytes;
  const auto num_bytes = num_bytes_of(layout.dtype, layout.shape);
  if (!num_bytes || *num_bytes != size - layout.offset) {
    const auto wanted = num_bytes ? fmt::format("{}", *num_bytes) : "2^63 or more";
    return head.error_at(layout.offset,
                         fmt::format("{} bytes of {} elements, as its header says ({})", wanted, name_of(layout.dtype),
                                     fmt::join(layout.shape, ", ")),
                         fmt::format("{} before the end of the file", size - layout.offset));
  }
  layout.num_bytes = *num_bytes;
  return layout;
}

base::Result<ArrayData> read_npy(const std::string& path) {
  auto file = RandomAccessFile::open(path);
  if (!file) return file.error();
  auto layout = read_npy_layout(*file);
  if (!layout) return layout.error();
  return read_array(*file, *layout);
}

base::Result<void> write_npy(const std::string& path, DType dtype, std::span<const int64_t> shape,
                             std::span<const char> bytes) {
  std::string header = format_npy_header(dtype, shape);
  // The elements begin at a multiple of 64, so that they are aligned in a mapped file.
  const size_t unpadded = kNpyMagic.size() + 4 + header.size() + 1;
  header.append((kNpyAlignment - unpadded % kNpyAlignment) % kNpyAlignment, ' ');
  header += '\n';
  if (header.size() > UINT16_MAX) {
    return base::Error(
        fmt::format("cannot write \"{}\": an array of {} dimensions has too long a header", path, shape.size()));
  }
  std::string start(kNpyMagic);
  start += {1, 0, static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
  auto file = base::AtomicFile::create(path);
  if (!file) return file.error();
  if (auto done = file->write(start + header); !done) return done;
  if (auto done = file->write({bytes.data(), bytes.size()}); !done) return done;
  return file->commit();
}

}  // namespace cohort::files
