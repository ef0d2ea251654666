/// Archives byte by byte, so that they can be wrong in every way. Nothing is compressed.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

namespace cohort::test {

inline std::string little_endian_bytes(uint32_t value, int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) bytes += static_cast<char>(value >> (8 * i));
  return bytes;
}

inline uint32_t crc32_of(const std::string& data) {
  uint32_t crc = 0xffffffff;
  for (const char byte : data) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return ~crc;
}

/// RFC 1952, with DEFLATE's blocks that are stored as they are (RFC 1951).
inline std::string gzip(const std::string& data) {
  std::string bytes("\x1f\x8b\x08\0\0\0\0\0\0\x03", 10);
  size_t begin = 0;
  do {
    const std::string part = data.substr(begin, 65535);
    begin += part.size();
    const auto size = static_cast<uint32_t>(part.size());
    bytes += begin == data.size() ? '\x01' : '\0';
    bytes += little_endian_bytes(size, 2) + little_endian_bytes(~size, 2) + part;
  } while (begin < data.size());
  return bytes + little_endian_bytes(crc32_of(data), 4) + little_endian_bytes(static_cast<uint32_t>(data.size()), 4);
}

/// An entry of a tar file (POSIX ustar): '0' a file, '1' a hard link, '2' a symbolic link, '3' a device, '5' a folder.
inline std::string tar_entry(const std::string& name, const std::string& contents, char type = '0',
                             const std::string& link = "") {
  std::string header(512, '\0');
  const auto put = [&](size_t at, const std::string& text) { header.replace(at, text.size(), text); };
  const auto octal = [](size_t number, int digits) {
    char text[32];
    std::snprintf(text, sizeof text, "%0*zo", digits, number);
    return std::string(text);
  };
  put(0, name);
  put(100, "0000644");
  put(108, "0000000");
  put(116, "0000000");
  put(124, octal(contents.size(), 11));
  put(136, "00000000000");
  put(148, "        ");
  header[156] = type;
  put(157, link);
  put(257, std::string("ustar\00000", 8));
  size_t sum = 0;
  for (const char byte : header) sum += static_cast<unsigned char>(byte);
  put(148, octal(sum, 6) + std::string("\0 ", 2));
  return header + contents + std::string((512 - contents.size() % 512) % 512, '\0');
}

inline std::string tar_end() { return std::string(1024, '\0'); }

}  // namespace cohort::test
