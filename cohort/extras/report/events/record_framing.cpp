#include "cohort/extras/report/events/record_framing.h"

#include <array>

namespace cohort::report {
namespace {

constexpr uint32_t kCastagnoli = 0x82f63b78;  // reflected: the lowest bit first

constexpr std::array<uint32_t, 256> make_crc32c_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = rest & 1 ? rest >> 1 ^ kCastagnoli : rest >> 1;
    table[byte] = rest;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kCrc32cTable = make_crc32c_table();

std::string little_endian(uint64_t value, int num_bytes) {
  std::string bytes;
  for (int i = 0; i < num_bytes; ++i) bytes += static_cast<char>(value >> 8 * i);
  return bytes;
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t rest = ~uint32_t{0};
  for (const char byte : bytes) rest = rest >> 8 ^ kCrc32cTable[(rest ^ static_cast<uint8_t>(byte)) & 0xff];
  return ~rest;
}

uint32_t masked_crc32c(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return (crc >> 15 | crc << 17) + 0xa282ead8;
}

std::string framed_record(std::string_view record) {
  const std::string length = little_endian(record.size(), 8);
  std::string framed = length + little_endian(masked_crc32c(length), 4);
  framed += record;
  return framed + little_endian(masked_crc32c(record), 4);
}

}  // namespace cohort::report
