#include "cohort/report/config/toml.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <utility>

#include "cohort/base/json_text.h"
#include "cohort/base/text.h"
#include "cohort/files/tensors/checked_json.h"
#include "cohort/report/records/run_record.h"

// The parser calls itself for what is nested.
#define TOML_MAX_NESTED_VALUES 32
#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

namespace cohort::report {
namespace {

using base::Error;
using base::Result;

constexpr size_t kLargestToml = size_t{1} << 20;
constexpr int64_t kMostKeyParts = 32;

std::string scalar_text(const TomlScalar& value) {
  if (const auto* truth = std::get_if<bool>(&value)) return *truth ? "true" : "false";
  if (const auto* integer = std::get_if<int64_t>(&value)) return std::to_string(*integer);
  // JSON lets one letter stand that TOML does not.
  if (const auto* text = std::get_if<std::string>(&value)) {
    return base::replace_all(base::json_string(*text), "\x7f", "\\u007f");
  }
  const std::string number = number_text(std::get<double>(value));
  const bool is_plain = number.find_first_not_of("-0123456789") == std::string::npos;
  return is_plain ? number + ".0" : number;
}

// toml++ makes a table for each part of a key, and calls itself to destroy them: a key of too many parts would take more stack
// than there is. Returns the line of such a key.
std::optional<int64_t> line_of_long_key(std::string_view text) {
  int64_t line = 1, dots = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char letter = text[i];
    if (letter == '"' || letter == '\'') {
      const std::string_view three = text.substr(i, 3);
      const bool has_lines = three.size() == 3 && three[1] == letter && three[2] == letter;
      const std::string_view quote = three.substr(0, has_lines ? 3 : 1);
      for (i += quote.size(); i < text.size() && !text.substr(i).starts_with(quote); ++i) {
        if (text[i] == '\n' && !has_lines) return std::nullopt;  // an error for the parser, which reads no further
        if (text[i] == '\\' && letter == '"') ++i;
        if (i < text.size() && text[i] == '\n') ++line;
      }
      i += quote.size() - 1;
      // Up to two quotes may stand before the three that close it.
      for (int more = 0; has_lines && more < 2 && i + 1 < text.size() && text[i + 1] == letter; ++more) ++i;
    } else if (letter == '#') {
      i = std::min(text.find('\n', i), text.size()) - 1;
    } else if (letter == '.') {
      if (++dots >= kMostKeyParts) return line;
    } else if (letter == '\n') {
      ++line;
      dots = 0;
    } else if (std::string_view("=,[]{}").find(letter) != std::string_view::npos) {
      dots = 0;
    }
  }
  return std::nullopt;
}

// What a table holds, key by key.
class EntryList {
 public:
  explicit EntryList(const std::string& name) : name_(name) {}

  Result<void> add_table(const std::string& prefix, const toml::table& table) {
    for (const auto& [key, node] : table) {
      auto added = add(prefix + std::string(key.str()), key.source().begin, node);
      if (!added) return added;
    }
    return {};
  }

  // In the order of the text. Names with "-" and with "_" are one option's.
  Result<std::vector<TomlEntry>> take() && {
    std::sort(found_.begin(), found_.end(), [](const Found& a, const Found& b) { return a.at < b.at; });
    std::map<std::string, int64_t> lines;
    std::vector<TomlEntry> entries;
    for (Found& each : found_) {
      const int64_t line = each.entry.line;
      const auto [same, is_new] = lines.emplace(base::replace_all(each.entry.name, "_", "-"), line);
      if (!is_new) {
        return error(each.at, fmt::format("{} comes twice; it was in line {} before", files::shortened(each.entry.name),
                                          same->second));
      }
      entries.push_back(std::move(each.entry));
    }
    return entries;
  }

  Error error(const toml::source_position& at, std::string_view message) const {
    return Error(fmt::format("\"{}\", line {}, column {}: {}", name_, at.line, at.column, message));
  }

 private:
  struct Found {
    toml::source_position at;
    TomlEntry entry;
  };

  Result<void> add(const std::string& name, const toml::source_position& at, const toml::node& node) {
    if (const toml::table* table = node.as_table()) {
      if (table->is_inline()) {
        return error(at, "an inline table ({...}) is no option; write its keys below a line [name]");
      }
      return add_table(name + ".", *table);
    }
    TomlValue value;
    if (const toml::array* array = node.as_array()) {
      TomlList list;
      for (const toml::node& item : *array) {
        if (item.is_table() && !item.as_table()->is_inline()) {
          return error(item.source().begin, "a list of tables ([[...]]) is no option");
        }
        if (item.is_table() || item.is_array()) {
          return error(item.source().begin, "a list holds texts and numbers, no lists or tables");
        }
        auto scalar = scalar_of(item);
        if (!scalar) return scalar.error();
        list.push_back(std::move(scalar).value());
      }
      value = std::move(list);
    } else {
      auto scalar = scalar_of(node);
      if (!scalar) return scalar.error();
      value = std::move(scalar).value();
    }
    found_.push_back({at, {name, std::move(value), static_cast<int64_t>(at.line)}});
    return {};
  }

  Result<TomlScalar> scalar_of(const toml::node& node) const {
    if (const auto* truth = node.as_boolean()) return TomlScalar(truth->get());
    if (const auto* integer = node.as_integer()) return TomlScalar(integer->get());
    if (const auto* number = node.as_floating_point()) return TomlScalar(number->get());
    if (const auto* text = node.as_string()) return TomlScalar(text->get());
    return error(node.source().begin, "a date or a time is no option; write it as a text in quotes");
  }

  const std::string& name_;
  std::vector<Found> found_;
};

}  // namespace

Result<std::vector<TomlEntry>> parse_toml(const std::string& name, std::string_view text) {
  if (text.size() > kLargestToml) {
    return Error(fmt::format("\"{}\" has {}, which no file of options has", name, base::format_bytes(text.size())));
  }
  if (const auto line = line_of_long_key(text)) {
    return Error(
        fmt::format("\"{}\", line {}: a key has at most {} parts with dots between them", name, *line, kMostKeyParts));
  }
  EntryList entries(name);
  const toml::parse_result parsed = toml::parse(text);
  if (parsed.failed()) {
    const toml::parse_error& problem = parsed.error();
    return entries.error(problem.source().begin, files::shortened(std::string(problem.description())));
  }
  if (auto added = entries.add_table("", parsed.table()); !added) return added.error();
  return std::move(entries).take();
}

std::optional<TomlScalar> parse_toml_number(const std::string& word) {
  const auto is_of_number = [](unsigned char letter) {
    return std::isalnum(letter) != 0 ||
           std::string_view("+-._").find(static_cast<char>(letter)) != std::string_view::npos;
  };
  if (!std::all_of(word.begin(), word.end(), is_of_number)) return std::nullopt;
  const toml::parse_result parsed = toml::parse("a = " + word);
  if (parsed.failed()) return std::nullopt;
  if (const auto* integer = parsed.table()["a"].as_integer()) return TomlScalar(integer->get());
  if (const auto* number = parsed.table()["a"].as_floating_point()) return TomlScalar(number->get());
  return std::nullopt;
}

std::string toml_text(const TomlValue& value) {
  if (const auto* scalar = std::get_if<TomlScalar>(&value)) return scalar_text(*scalar);
  std::vector<std::string> texts;
  for (const TomlScalar& scalar : std::get<TomlList>(value)) texts.push_back(scalar_text(scalar));
  return "[" + base::join(texts, ", ") + "]";
}

}  // namespace cohort::report
