/// A line made of parts, of which the least important are left out on a narrow terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::report {

struct LinePart {
  std::string text;
  /// 0 stays longest. Of equally important parts the last is left out first.
  int importance = 0;
  bool is_dim = false;
};

/// Returns the number of columns on a terminal: one per letter of UTF-8, two for wide letters of East Asia, none for a mark on a
/// letter.
size_t num_columns(std::string_view text);
/// Returns the beginning of the text that fits `columns`.
std::string_view first_columns(std::string_view text, size_t columns);

/// Joins the parts with two spaces, at most `columns` wide; 0 means no limit. `has_color` shows dim parts in a dim color.
/// Replaces control characters with "?".
std::string fitted_line(const std::vector<LinePart>& parts, size_t columns, bool has_color);

}  // namespace cohort::report
