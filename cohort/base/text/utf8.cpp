#include "cohort/base/text/utf8.h"

namespace cohort::base {

size_t decode_utf8(std::string_view text, unsigned long& code_point) {
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x80) {
    code_point = first;
    return 1;
  }
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  code_point = first & (0xFFu >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    const auto next = static_cast<unsigned char>(text[i]);
    if ((next & 0xC0) != 0x80) return 0;
    code_point = code_point << 6 | (next & 0x3Fu);
  }
  const bool overlong = (length == 3 && code_point < 0x800) || (length == 4 && code_point < 0x10000);
  const bool surrogate = code_point >= 0xD800 && code_point <= 0xDFFF;
  return overlong || surrogate || code_point > 0x10FFFF ? 0 : length;
}

size_t utf8_prefix(std::string_view text) {
  unsigned long code_point = 0;
  size_t at = 0;
  while (at < text.size()) {
    const size_t length = decode_utf8(text.substr(at), code_point);
    if (length == 0) break;
    at += length;
  }
  return at;
}

bool is_utf8(std::string_view text) { return utf8_prefix(text) == text.size(); }

std::string valid_utf8(std::string_view text) {
  std::string valid;
  unsigned long code_point = 0;
  while (!text.empty()) {
    const size_t length = decode_utf8(text, code_point);
    valid += length == 0 ? "\xef\xbf\xbd" : text.substr(0, length);
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return valid;
}

}  // namespace cohort::base
