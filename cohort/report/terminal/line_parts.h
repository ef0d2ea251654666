/// A line made of parts, of which the least important give way where the terminal is narrow.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::report {

struct LinePart {
  std::string text;
  /// 0: stays longest. Of parts that are equally important the last goes first.
  int importance = 0;
  bool is_dim = false;
};

/// Columns on a terminal: letters of UTF-8, each as one; as two the wide ones of East Asia, as none a mark on a letter.
size_t num_columns(std::string_view text);
/// The beginning of the text that fills at most so many columns.
std::string_view first_columns(std::string_view text, size_t columns);

/// The parts with two spaces between them, at most `columns` wide; 0: as wide as they are. `has_colour`: dim parts are. "?"
/// stands for a control character.
std::string fitted_line(const std::vector<LinePart>& parts, size_t columns, bool has_colour);

}  // namespace cohort::report
