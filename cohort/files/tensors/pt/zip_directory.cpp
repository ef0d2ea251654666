#include "cohort/files/tensors/pt/zip_directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <string_view>

#include "cohort/files/tensors/elements/crc32.h"
#include "cohort/files/tensors/pt/zip_format.h"

namespace cohort::files {
namespace {

using base::Error;
using base::Result;

// The place of the directory, from the end of a zip file.
struct DirectoryPlace {
  uint64_t count = 0;
  uint64_t size = 0;
  uint64_t offset = 0;
  /// The directory ends here or before.
  uint64_t limit = 0;
};

uint64_t number_at(std::string_view bytes, size_t place, int size) {
  uint64_t value = 0;
  for (int i = size - 1; i >= 0; --i)
    value = value << 8 | static_cast<unsigned char>(bytes[place + static_cast<size_t>(i)]);
  return value;
}

Error truncated(const RandomAccessFile& file) {
  return Error(fmt::format("\"{}\" has no end record of a zip file in its {} bytes", file.path(), file.size()))
      .with_hint("check that the file is complete, and that it is a zip file");
}

// Reads the record before `end` that has numbers larger than 16 and 32 bits. Returns nothing if there is none.
Result<std::optional<DirectoryPlace>> read_large_end(const RandomAccessFile& file, uint64_t end) {
  if (end < zip::kLocatorSize) return std::optional<DirectoryPlace>();
  auto locator = file.read(end - zip::kLocatorSize, zip::kLocatorSize, "the locator of a zip file's end");
  if (!locator) return locator.error();
  if (number_at(*locator, 0, 4) != zip::kLocator) return std::optional<DirectoryPlace>();
  const uint64_t at = number_at(*locator, 8, 8);
  if (at > end - zip::kLocatorSize || end - zip::kLocatorSize - at < zip::kLargeEndSize) {
    return file.error_at(end - zip::kLocatorSize + 8, "the place of a zip file's end record", fmt::format("{}", at));
  }
  auto record = file.read(at, zip::kLargeEndSize, "a zip file's end record");
  if (!record) return record.error();
  if (number_at(*record, 0, 4) != zip::kLargeEnd) {
    return file.error_at(at, "a zip file's end record of 64 bits", "other bytes");
  }
  return std::optional(
      DirectoryPlace{number_at(*record, 32, 8), number_at(*record, 40, 8), number_at(*record, 48, 8), at});
}

Result<DirectoryPlace> find_directory(const RandomAccessFile& file) {
  if (file.size() < zip::kEndSize) return truncated(file);
  const uint64_t tail_size = std::min<uint64_t>(file.size(), zip::kEndSize + 0xFFFF);
  auto tail = file.read(file.size() - tail_size, tail_size, "the end of a zip file");
  if (!tail) return tail.error();
  for (size_t place = tail->size() - zip::kEndSize;; --place) {
    const bool is_end = number_at(*tail, place, 4) == zip::kEnd &&
                        place + zip::kEndSize + number_at(*tail, place + 20, 2) == tail->size();
    if (is_end) {
      const uint64_t end = file.size() - tail_size + place;
      auto large = read_large_end(file, end);
      if (!large) return large.error();
      if (*large) return **large;
      return DirectoryPlace{number_at(*tail, place + 10, 2), number_at(*tail, place + 12, 4),
                            number_at(*tail, place + 16, 4), end};
    }
    if (place == 0) return truncated(file);
  }
}

// The fields of an extra part that replace numbers of 0xFFFFFFFF, in the order of their need.
class LargeNumbers {
 public:
  explicit LargeNumbers(std::string_view extra) {
    while (extra.size() >= 4) {
      const uint64_t size = number_at(extra, 2, 2);
      if (size > extra.size() - 4) return;
      if (number_at(extra, 0, 2) == 1) {
        left_ = extra.substr(4, size);
        return;
      }
      extra.remove_prefix(4 + size);
    }
  }
  /// Returns false if it is missing.
  bool replace(uint64_t* number) {
    if (*number != 0xFFFFFFFF) return true;
    if (left_.size() < 8) return false;
    *number = number_at(left_, 0, 8);
    left_.remove_prefix(8);
    return true;
  }

 private:
  std::string_view left_;
};

bool leaves_archive(std::string_view name) {
  if (name.starts_with('/')) return true;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('/', begin), name.size());
    if (name.substr(begin, end - begin) == "..") return true;
    begin = end + 1;
  }
  return false;
}

class DirectoryReader {
 public:
  explicit DirectoryReader(const RandomAccessFile& file) : file_(file) {}

  Result<ZipDirectory> read() {
    auto place = find_directory(file_);
    if (!place) return place.error();
    if (place->offset > place->limit || place->size > place->limit - place->offset) {
      return file_.error_at(place->limit, "the place of a directory before it",
                            fmt::format("{} bytes at {}", place->size, place->offset));
    }
    if (place->count > place->size / zip::kEntrySize) {
      return file_.error_at(place->limit, fmt::format("as many records as {} bytes can list", place->size),
                            fmt::format("{}", place->count));
    }
    begin_ = place->offset;
    auto bytes = file_.read(place->offset, place->size, "a zip file's directory");
    if (!bytes) return bytes.error();
    std::string_view left = *bytes;
    for (uint64_t i = 0; i < place->count; ++i) {
      if (auto done = read_entry(&left, place->size - left.size()); !done) return done.error();
    }
    auto done = check_places();
    if (!done) return done.error();
    return std::move(directory_);
  }

 private:
  Result<void> read_entry(std::string_view* left, uint64_t place) {
    const auto fail = [&](std::string_view expected, std::string_view found) {
      return file_.error_at(begin_ + place, expected, found);
    };
    if (left->size() < zip::kEntrySize || number_at(*left, 0, 4) != zip::kEntry) {
      return fail("an entry of a zip file's directory", "other bytes");
    }
    const uint64_t name_size = number_at(*left, 28, 2);
    const uint64_t extra_size = number_at(*left, 30, 2);
    const uint64_t size = zip::kEntrySize + name_size + extra_size + number_at(*left, 32, 2);
    if (size > left->size()) return fail("an entry that ends in the directory", "a longer one");
    ZipRecord record{.name = std::string(left->substr(zip::kEntrySize, name_size)),
                     .header_offset = number_at(*left, 42, 4),
                     .size = number_at(*left, 24, 4),
                     .crc = static_cast<uint32_t>(number_at(*left, 16, 4)),
                     .packed_size = number_at(*left, 20, 4)};
    LargeNumbers large(left->substr(zip::kEntrySize + name_size, extra_size));
    if (!large.replace(&record.size) || !large.replace(&record.packed_size) || !large.replace(&record.header_offset)) {
      return fail("numbers of 64 bits", "none");
    }
    if (number_at(*left, 8, 2) & 1) return fail("records without encryption", fmt::format("\"{}\"", record.name));
    record.is_compressed = number_at(*left, 10, 2) != 0;
    if (!record.is_compressed && record.packed_size != record.size) return fail("one size of a stored record", "two");
    if (leaves_archive(record.name)) {
      return fail("names inside the archive", fmt::format("\"{}\"", record.name));
    }
    if (!directory_.places.try_emplace(record.name, directory_.records.size()).second) {
      return fail("names that come once", fmt::format("\"{}\" twice", record.name));
    }
    directory_.records.push_back(std::move(record));
    left->remove_prefix(size);
    return {};
  }

  // Reads the record's own header.
  Result<void> find_bytes(ZipRecord* record) {
    auto header = file_.read(record->header_offset, zip::kHeaderSize, "a record's header");
    if (!header) return header.error();
    const auto fail = [&](std::string_view found) {
      return file_.error_at(record->header_offset, fmt::format("the header of \"{}\"", record->name), found);
    };
    if (number_at(*header, 0, 4) != zip::kHeader) return fail("other bytes");
    const uint64_t name_size = number_at(*header, 26, 2);
    auto name = file_.read(record->header_offset + zip::kHeaderSize, name_size, "a record's name");
    if (!name) return name.error();
    if (*name != record->name) return fail("one with another name");
    if ((number_at(*header, 8, 2) != 0) != record->is_compressed) return fail("one with another method of compression");
    record->offset = record->header_offset + zip::kHeaderSize + name_size + number_at(*header, 28, 2);
    if (record->offset > begin_ || record->packed_size > begin_ - record->offset) {
      return fail(fmt::format("{} bytes that reach into the directory", record->packed_size));
    }
    return {};
  }

  Result<void> check_places() {
    auto& records = directory_.records;
    std::vector<size_t> order(records.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::sort(order.begin(), order.end(),
              [&](size_t a, size_t b) { return records[a].header_offset < records[b].header_offset; });
    uint64_t end = 0;
    for (const size_t index : order) {
      ZipRecord& record = records[index];
      if (record.header_offset < end) {
        return file_.error_at(record.header_offset, "records that do not overlap", fmt::format("\"{}\"", record.name));
      }
      if (auto done = find_bytes(&record); !done) return done;
      end = record.offset + record.packed_size;
    }
    return {};
  }

  const RandomAccessFile& file_;
  uint64_t begin_ = 0;
  ZipDirectory directory_;
};

}  // namespace

Result<ZipDirectory> read_zip_directory(const RandomAccessFile& file) { return DirectoryReader(file).read(); }

Result<void> check_stored(const RandomAccessFile& file, const ZipRecord& record) {
  if (!record.is_compressed) return {};
  return Error(fmt::format("\"{}\": its record \"{}\" is compressed; those of PyTorch's files are not", file.path(),
                           record.name))
      .with_hint("unpack it and pack it again without compression: zip -0 -r FILE FOLDER");
}

Result<std::string> read_zip_record(const RandomAccessFile& file, const ZipRecord& record, uint64_t limit) {
  if (auto done = check_stored(file, record); !done) return done.error();
  if (record.size > limit) {
    return Error(fmt::format("\"{}\": its record \"{}\" has {} bytes, more than the {} that are read", file.path(),
                             record.name, record.size, limit));
  }
  auto bytes = file.read(record.offset, record.size, record.name);
  if (!bytes) return bytes.error();
  if (crc32(*bytes) != record.crc) {
    return Error(
               fmt::format("\"{}\": the bytes of its record \"{}\" do not have the checksum that was written for them",
                           file.path(), record.name))
        .with_hint("the file is damaged; take another copy");
  }
  return bytes;
}

}  // namespace cohort::files
