/// Reads TOML (version 1.0, with toml++) as far as options need it: tables, dotted and quoted keys, texts of all four kinds,
/// numbers, true and false, and lists of these. Dates, inline tables, lists of tables and lists in lists are errors that say so.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "cohort/base/error/result.h"

namespace cohort::report {

using TomlScalar = std::variant<bool, int64_t, double, std::string>;
using TomlList = std::vector<TomlScalar>;
using TomlValue = std::variant<TomlScalar, TomlList>;

struct TomlEntry {
  /// The full name: "optimizer.lr" for lr in [optimizer].
  std::string name;
  TomlValue value;
  int64_t line = 0;  ///< from 1
};

/// Returns the entries in the order of the text. Fails for a key that occurs twice ("-" and "_" are equal), for texts above 1
/// MiB, and for keys of more than 32 parts. `name` is the file's name in errors such as `"run.toml", line 3, column 3: Error
/// while parsing key-value pair: expected '=', saw '2'`.
base::Result<std::vector<TomlEntry>> parse_toml(const std::string& name, std::string_view text);

/// Parses a number alone, such as a word of a command line: "1_000", "0xff", "-1.5e3", "inf". Returns nothing for other text, or
/// if the number is too large.
std::optional<TomlScalar> parse_toml_number(const std::string& word);

/// Writes the value as a file has it: `"a\n"`, `0.1`, `5.0`, `true`, `[1, 2]`.
std::string toml_text(const TomlValue& value);

}  // namespace cohort::report
