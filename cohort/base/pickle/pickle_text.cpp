#include "cohort/base/pickle/pickle_text.h"

#include <cctype>

namespace cohort::base {

bool append_utf8(std::string& text, unsigned long code_point) {
  if (code_point > 0x10FFFF || (code_point >= 0xD800 && code_point <= 0xDFFF)) return false;
  const auto tail = [&](int shift) { text += static_cast<char>(0x80 | ((code_point >> shift) & 0x3F)); };
  if (code_point < 0x80) {
    text += static_cast<char>(code_point);
  } else if (code_point < 0x800) {
    text += static_cast<char>(0xC0 | code_point >> 6);
    tail(0);
  } else if (code_point < 0x10000) {
    text += static_cast<char>(0xE0 | code_point >> 12);
    tail(6);
    tail(0);
  } else {
    text += static_cast<char>(0xF0 | code_point >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
  return true;
}

std::optional<std::string> to_latin1(std::string_view utf8) {
  std::string bytes;
  bytes.reserve(utf8.size());
  unsigned long code_point = 0;
  while (!utf8.empty()) {
    const auto length = decode_utf8(utf8, code_point);
    if (length == 0 || code_point > 0xFF) return std::nullopt;
    bytes += static_cast<char>(code_point);
    utf8.remove_prefix(length);
  }
  return bytes;
}

std::optional<std::string> from_raw_unicode_escape(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const bool escape = text[i] == '\\' && i + 1 < text.size() && (text[i + 1] == 'u' || text[i + 1] == 'U');
    if (!escape) {
      append_utf8(result, static_cast<unsigned char>(text[i++]));
      continue;
    }
    const size_t digits = text[i + 1] == 'u' ? 4 : 8;
    if (text.size() - i - 2 < digits) return std::nullopt;
    unsigned long code_point = 0;
    for (const char digit : text.substr(i + 2, digits)) {
      if (!std::isxdigit(static_cast<unsigned char>(digit))) return std::nullopt;
      code_point = code_point * 16 + (digit <= '9' ? digit - '0' : (digit | 0x20) - 'a' + 10);
    }
    if (!append_utf8(result, code_point)) return std::nullopt;
    i += 2 + digits;
  }
  return result;
}

}  // namespace cohort::base
