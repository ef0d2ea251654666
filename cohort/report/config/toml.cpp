#include "cohort/report/config/toml.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cohort/base/json_text.h"
#include "cohort/base/text.h"
#include "cohort/base/utf8.h"
#include "cohort/files/tensors/checked_json.h"
#include "cohort/report/config/toml_number.h"
#include "cohort/report/config/toml_reader.h"
#include "cohort/report/records/run_record.h"

namespace cohort::report {
namespace {

constexpr size_t kLargestToml = size_t{1} << 20;

bool is_bare(char letter) {
  return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') || (letter >= '0' && letter <= '9') ||
         letter == '-' || letter == '_';
}

std::string utf8(uint32_t code) {
  const auto byte = [](uint32_t value) { return static_cast<char>(value); };
  if (code < 0x80) return {byte(code)};
  if (code < 0x800) return {byte(0xc0 | code >> 6), byte(0x80 | (code & 0x3f))};
  if (code < 0x10000) return {byte(0xe0 | code >> 12), byte(0x80 | (code >> 6 & 0x3f)), byte(0x80 | (code & 0x3f))};
  return {byte(0xf0 | code >> 18), byte(0x80 | (code >> 12 & 0x3f)), byte(0x80 | (code >> 6 & 0x3f)),
          byte(0x80 | (code & 0x3f))};
}

std::string scalar_text(const TomlScalar& value) {
  if (const auto* truth = std::get_if<bool>(&value)) return *truth ? "true" : "false";
  if (const auto* integer = std::get_if<int64_t>(&value)) return std::to_string(*integer);
  if (const auto* text = std::get_if<std::string>(&value)) return base::json_string(*text);
  const std::string number = number_text(std::get<double>(value));
  const bool is_plain = number.find_first_not_of("-0123456789") == std::string::npos;
  return is_plain ? number + ".0" : number;
}

}  // namespace

base::Result<std::vector<TomlEntry>> parse_toml(const std::string& name, std::string_view text) {
  if (text.size() > kLargestToml) {
    return base::Error(
        fmt::format("\"{}\" has {}, which no file of options has", name, base::format_bytes(text.size())));
  }
  if (const size_t good = base::utf8_prefix(text); good < text.size()) {
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(good), '\n');
    return base::Error(
        fmt::format("\"{}\", line {}: a byte that is no UTF-8, which every TOML file is written in", name, line));
  }
  return TomlReader(name, text).read();
}

std::string toml_text(const TomlValue& value) {
  if (const auto* scalar = std::get_if<TomlScalar>(&value)) return scalar_text(*scalar);
  std::vector<std::string> texts;
  for (const TomlScalar& scalar : std::get<TomlList>(value)) texts.push_back(scalar_text(scalar));
  return "[" + base::join(texts, ", ") + "]";
}

base::Error TomlReader::error(std::string_view message) const {
  return base::Error(fmt::format("\"{}\", line {}: {}", name_, line_, message));
}

bool TomlReader::take(std::string_view word) {
  if (!text_.substr(at_).starts_with(word)) return false;
  line_ += std::count(word.begin(), word.end(), '\n');
  at_ += word.size();
  return true;
}

void TomlReader::skip_blanks() {
  while (next() == ' ' || next() == '\t') ++at_;
}

void TomlReader::skip_space() {
  for (;;) {
    skip_blanks();
    if (next() == '#') at_ = std::min(text_.find('\n', at_), text_.size());
    if (!take("\n") && !take("\r\n")) return;
  }
}

base::Result<std::vector<TomlEntry>> TomlReader::read() {
  take("\xef\xbb\xbf");
  for (skip_space(); !at_end(); skip_space()) {
    if (auto done = next() == '[' ? read_table() : read_entry(); !done) return done.error();
    if (auto ended = end_line(); !ended) return ended.error();
  }
  return std::move(entries_);
}

base::Result<void> TomlReader::end_line() {
  skip_blanks();
  if (at_end() || next() == '#' || next() == '\n' || text_.substr(at_).starts_with("\r\n")) return {};
  const std::string rest(text_.substr(at_, std::min(text_.find('\n', at_) - at_, size_t{200})));
  return error(fmt::format("expected the end of the line, but found \"{}\"", files::shortened(rest)));
}

base::Result<void> TomlReader::read_table() {
  if (take("[[")) return error("a list of tables ([[...]]) is no option");
  take("[");
  skip_blanks();
  auto key = read_key();
  if (!key) return key.error();
  if (!take("]")) return error("expected \"]\" after the name of a table");
  table_ = *key + ".";
  return {};
}

base::Result<void> TomlReader::read_entry() {
  const int64_t line = line_;
  auto key = read_key();
  if (!key) return key.error();
  if (!take("=")) return error("expected \"=\" after a key");
  skip_blanks();
  const std::string name = table_ + *key;
  const auto [same, is_new] = lines_.emplace(base::replace_all(name, "_", "-"), line);
  if (!is_new)
    return error(fmt::format("{} comes twice; it was in line {} before", files::shortened(name), same->second));
  auto value = read_value();
  if (!value) return value.error();
  entries_.push_back({name, std::move(value).value(), line});
  return {};
}

base::Result<std::string> TomlReader::read_key() {
  std::string key;
  do {
    skip_blanks();
    auto part = read_key_part();
    if (!part) return part;
    key += (key.empty() ? "" : ".") + *part;
    skip_blanks();
  } while (take("."));
  return key;
}

base::Result<std::string> TomlReader::read_key_part() {
  if (next() == '"' || next() == '\'') {
    if (text_.substr(at_).starts_with("\"\"\"") || text_.substr(at_).starts_with("'''")) {
      return error("a key is no text of several lines");
    }
    return read_text();
  }
  const size_t begin = at_;
  while (is_bare(next())) ++at_;
  if (at_ == begin) return error("expected a key, such as epochs or \"epochs\"");
  return std::string(text_.substr(begin, at_ - begin));
}

base::Result<TomlValue> TomlReader::read_value() {
  if (next() == '{') return error("an inline table ({...}) is no option; write its keys below a line [name]");
  if (next() == '[') {
    auto list = read_list();
    if (!list) return list.error();
    return TomlValue(std::move(list).value());
  }
  auto scalar = read_scalar();
  if (!scalar) return scalar.error();
  return TomlValue(std::move(scalar).value());
}

base::Result<TomlList> TomlReader::read_list() {
  take("[");
  TomlList list;
  for (;;) {
    skip_space();
    if (take("]")) return list;
    if (next() == '[' || next() == '{') return error("a list holds texts and numbers, no lists or tables");
    auto value = read_scalar();
    if (!value) return value.error();
    list.push_back(std::move(value).value());
    skip_space();
    if (!take(",") && next() != ']') return error("expected \",\" or \"]\" in a list");
  }
}

base::Result<TomlScalar> TomlReader::read_scalar() {
  if (next() != '"' && next() != '\'') return read_plain();
  auto text = read_text();
  if (!text) return text.error();
  return TomlScalar(std::move(text).value());
}

base::Result<TomlScalar> TomlReader::read_plain() {
  const size_t begin = at_;
  while (is_bare(next()) || next() == '+' || next() == '.' || next() == ':') ++at_;
  const std::string word(text_.substr(begin, at_ - begin));
  if (word == "true" || word == "false") return TomlScalar(word == "true");
  if (const auto number = parse_toml_number(word)) return *number;
  return error(fmt::format("expected a value, such as 5, 0.1, true, \"text\" or [1, 2], but found \"{}\"",
                           files::shortened(word)));
}

base::Result<std::string> TomlReader::read_text() {
  for (const char* quote : {"\"\"\"", "'''", "\"", "'"}) {
    if (!take(quote)) continue;
    if (std::string_view(quote).size() == 3 && !take("\n")) take("\r\n");  // a first line break does not count
    return quote[0] == '"' ? read_basic(quote) : read_literal(quote);
  }
  return error("expected a text in quotes");
}

base::Result<std::string> TomlReader::read_literal(std::string_view quote) {
  const size_t end = text_.find(quote, at_);
  const std::string_view body = text_.substr(at_, end == std::string_view::npos ? end : end - at_);
  const bool breaks = quote.size() == 1 && body.find('\n') != std::string_view::npos;
  if (end == std::string_view::npos || breaks) return error("a text lacks its closing quote");
  line_ += std::count(body.begin(), body.end(), '\n');
  at_ = end + quote.size();
  std::string text(body);
  while (quote.size() == 3 && text.size() < body.size() + 2 && next() == '\'') text += text_[at_++];
  return text;
}

base::Result<std::string> TomlReader::read_basic(std::string_view quote) {
  std::string text;
  while (!text_.substr(at_).starts_with(quote)) {
    if (at_end() || (quote.size() == 1 && next() == '\n')) return error("a text lacks its closing quote");
    if (next() == '\\') {
      auto letter = read_escape();
      if (!letter) return letter;
      text += *letter;
      continue;
    }
    if (next() == '\n') ++line_;
    text += text_[at_++];
  }
  at_ += quote.size();
  // Up to two quotes may stand before the three that close it.
  for (int i = 0; quote.size() == 3 && i < 2 && next() == '"'; ++i) text += text_[at_++];
  return text;
}

base::Result<std::string> TomlReader::read_escape() {
  ++at_;
  const char letter = at_end() ? '\0' : text_[at_++];
  constexpr std::string_view kLetters = "btnfr\"\\e", kMeanings = "\b\t\n\f\r\"\\\x1b";
  if (const size_t index = kLetters.find(letter); index != std::string_view::npos)
    return std::string(1, kMeanings[index]);
  if (letter == 'u' || letter == 'U') {
    const std::string digits(text_.substr(at_, letter == 'u' ? 4 : 8));
    const auto code = parse_toml_number("0x" + digits);
    const bool is_whole = digits.size() == (letter == 'u' ? 4U : 8U) && digits.find('_') == std::string::npos;
    const int64_t value = code && is_whole ? std::get<int64_t>(*code) : -1;
    if (value < 0 || value > 0x10ffff || (value >= 0xd800 && value < 0xe000)) {
      return error(fmt::format("\"\\{}{}\" is no letter", letter, files::shortened(digits)));
    }
    at_ += digits.size();
    return utf8(static_cast<uint32_t>(value));
  }
  // At the end of a line: what follows goes on after the next blanks and line breaks.
  if (letter == '\n' || letter == '\r' || letter == ' ' || letter == '\t') {
    --at_;
    const size_t begin = at_;
    while (next() == ' ' || next() == '\t' || next() == '\r' || next() == '\n') take(text_.substr(at_, 1));
    if (text_.substr(begin, at_ - begin).find('\n') != std::string_view::npos) return std::string();
  }
  return error("an unknown letter follows a backslash in a text; two backslashes stand for one");
}

}  // namespace cohort::report
