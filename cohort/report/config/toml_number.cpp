#include "cohort/report/config/toml_number.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>

namespace cohort::report {
namespace {

bool is_digit(char letter) { return std::isxdigit(static_cast<unsigned char>(letter)) != 0; }

// Between two digits only; nothing otherwise.
std::optional<std::string> without_underscores(const std::string& word) {
  std::string digits;
  for (size_t i = 0; i < word.size(); ++i) {
    if (word[i] != '_') {
      digits += word[i];
    } else if (i == 0 || i + 1 == word.size() || !is_digit(word[i - 1]) || !is_digit(word[i + 1])) {
      return std::nullopt;
    }
  }
  return digits;
}

template <typename T, typename... Format>
std::optional<TomlScalar> whole_word(const std::string& word, Format... format) {
  T value{};
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value, format...);
  if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return TomlScalar(value);
}

}  // namespace

std::optional<TomlScalar> parse_toml_number(const std::string& word) {
  const auto plain = without_underscores(word);
  if (!plain || plain->empty()) return std::nullopt;
  const auto prefixed = [&](const char* prefix) { return plain->starts_with(prefix) && (*plain)[2] != '-'; };
  if (prefixed("0x")) return whole_word<int64_t>(plain->substr(2), 16);
  if (prefixed("0o")) return whole_word<int64_t>(plain->substr(2), 8);
  if (prefixed("0b")) return whole_word<int64_t>(plain->substr(2), 2);
  const std::string unsigned_word = plain->front() == '+' || plain->front() == '-' ? plain->substr(1) : *plain;
  const double sign = plain->front() == '-' ? -1.0 : 1.0;
  if (unsigned_word == "inf") return TomlScalar(sign * std::numeric_limits<double>::infinity());
  if (unsigned_word == "nan") return TomlScalar(std::numeric_limits<double>::quiet_NaN());
  if (unsigned_word.empty() || !std::isdigit(static_cast<unsigned char>(unsigned_word[0]))) return std::nullopt;
  const std::string signed_word = (sign < 0 ? "-" : "") + unsigned_word;  // from_chars takes no "+"
  const bool has_leading_zero =
      unsigned_word.size() > 1 && unsigned_word[0] == '0' && std::isdigit(static_cast<unsigned char>(unsigned_word[1]));
  if (has_leading_zero) return std::nullopt;
  if (const auto integer = whole_word<int64_t>(signed_word, 10)) return integer;
  const bool is_float = unsigned_word.find_first_of(".eE") != std::string::npos && unsigned_word.back() != '.';
  if (!is_float || unsigned_word.find(".e") != std::string::npos || unsigned_word.find(".E") != std::string::npos)
    return std::nullopt;
  return whole_word<double>(signed_word);
}

}  // namespace cohort::report
