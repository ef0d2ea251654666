/// Where parse_toml stands in a text.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/report/config/toml.h"

namespace cohort::report {

/// Thread-safety: one thread.
class TomlReader {
 public:
  TomlReader(std::string name, std::string_view text) : name_(std::move(name)), text_(text) {}
  base::Result<std::vector<TomlEntry>> read();

 private:
  base::Error error(std::string_view message) const;
  bool at_end() const { return at_ == text_.size(); }
  char next() const { return at_end() ? '\0' : text_[at_]; }
  bool take(std::string_view word);
  void skip_blanks();
  /// Blanks, comments and ends of lines.
  void skip_space();
  base::Result<void> end_line();
  base::Result<void> read_table();
  base::Result<void> read_entry();
  base::Result<std::string> read_key();
  base::Result<std::string> read_key_part();
  base::Result<TomlValue> read_value();
  base::Result<TomlList> read_list();
  base::Result<TomlScalar> read_scalar();
  base::Result<TomlScalar> read_plain();
  base::Result<std::string> read_text();
  base::Result<std::string> read_literal(std::string_view quote);
  base::Result<std::string> read_basic(std::string_view quote);
  base::Result<std::string> read_escape();

  std::string name_;
  std::string_view text_;
  size_t at_ = 0;
  int64_t line_ = 1;
  std::string table_;
  std::vector<TomlEntry> entries_;
  std::map<std::string, int64_t> lines_;  ///< of each key; "-" and "_" are one letter in names of options
};

}  // namespace cohort::report
