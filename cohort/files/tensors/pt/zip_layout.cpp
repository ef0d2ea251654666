#include "cohort/files/tensors/pt/zip_layout.h"

#include <algorithm>
#include <utility>

#include "cohort/files/tensors/pt/zip_format.h"

namespace cohort::files {
namespace {

constexpr uint64_t kAlignment = 64;

void put(std::string* out, uint64_t value, int size) {
  for (int i = 0; i < size; ++i, value >>= 8) *out += static_cast<char>(value);
}

uint64_t small(uint64_t number) { return std::min(number, zip::kLarge); }

// Returns the numbers that do not fit the fields of 32 bits; both sizes if one does not fit.
std::string large_numbers(uint64_t size, uint64_t header_offset) {
  std::string numbers;
  if (size >= zip::kLarge) {
    put(&numbers, size, 8);
    put(&numbers, size, 8);
  }
  if (header_offset >= zip::kLarge) put(&numbers, header_offset, 8);
  if (numbers.empty()) return numbers;
  std::string extra;
  put(&extra, 1, 2);
  put(&extra, numbers.size(), 2);
  return extra + numbers;
}

// Texts are UTF-8; size and checksum come after the bytes.
uint64_t flags(uint64_t size) { return size > 0 ? 0x808 : 0x800; }

}  // namespace

uint64_t ZipLayout::add(std::string name, uint64_t size) {
  Record record{.name = std::move(name), .header_offset = end_, .size = size};
  const uint64_t least = end_ + zip::kHeaderSize + record.name.size() + large_numbers(size, end_).size() +
                         4;  // 4: the padding's own header
  record.offset = (least + kAlignment - 1) / kAlignment * kAlignment;
  end_ = record.offset + size + descriptor(record).size();
  records_.push_back(std::move(record));
  return records_.back().offset;
}

std::string ZipLayout::header(const Record& record) const {
  const std::string large = large_numbers(record.size, record.header_offset);
  const uint64_t extra_size = record.offset - record.header_offset - zip::kHeaderSize - record.name.size();
  std::string out;
  put(&out, zip::kHeader, 4);
  put(&out, 0, 2);
  put(&out, flags(record.size), 2);
  put(&out, 0, 18);  // method, time, date; checksum and sizes come later
  put(&out, record.name.size(), 2);
  put(&out, extra_size, 2);
  out += record.name + large + "FB";
  const uint64_t padding = extra_size - large.size() - 4;
  put(&out, padding, 2);
  out.append(padding, 'Z');
  return out;
}

std::string ZipLayout::descriptor(const Record& record) const {
  std::string out;
  if (record.size == 0) return out;
  const int width = record.size >= zip::kLarge || record.header_offset >= zip::kLarge ? 8 : 4;
  put(&out, zip::kDescriptor, 4);
  put(&out, record.crc, 4);
  put(&out, record.size, width);
  put(&out, record.size, width);
  return out;
}

std::string ZipLayout::directory() const {
  std::string out;
  for (const Record& record : records_) {
    const std::string large = large_numbers(record.size, record.header_offset);
    put(&out, zip::kEntry, 4);
    put(&out, 0, 4);  // versions
    put(&out, flags(record.size), 2);
    put(&out, 0, 6);  // method, time, date
    put(&out, record.crc, 4);
    put(&out, small(record.size), 4);
    put(&out, small(record.size), 4);
    put(&out, record.name.size(), 2);
    put(&out, large.size(), 2);
    put(&out, 0, 10);  // comment, disk, attributes
    put(&out, small(record.header_offset), 4);
    out += record.name + large;
  }
  const uint64_t size = out.size();
  put(&out, zip::kLargeEnd, 4);
  put(&out, zip::kLargeEndSize - 12, 8);
  put(&out, 0x031e, 2);
  put(&out, 45, 2);
  put(&out, 0, 8);
  put(&out, records_.size(), 8);
  put(&out, records_.size(), 8);
  put(&out, size, 8);
  put(&out, end_, 8);
  put(&out, zip::kLocator, 4);
  put(&out, 0, 4);
  put(&out, end_ + size, 8);
  put(&out, 1, 4);
  put(&out, zip::kEnd, 4);
  put(&out, 0, 4);
  put(&out, std::min<uint64_t>(records_.size(), 0xFFFF), 2);
  put(&out, std::min<uint64_t>(records_.size(), 0xFFFF), 2);
  put(&out, small(size), 4);
  put(&out, small(end_), 4);
  put(&out, 0, 2);
  return out;
}

std::vector<ZipLayout::Piece> ZipLayout::pieces() const {
  std::vector<Piece> result;
  for (const Record& record : records_) {
    result.push_back({record.header_offset, header(record)});
    if (record.size > 0) result.push_back({record.offset + record.size, descriptor(record)});
  }
  result.push_back({end_, directory()});
  return result;
}

uint64_t ZipLayout::file_size() const { return end_ + directory().size(); }

}  // namespace cohort::files
