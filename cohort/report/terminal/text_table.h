/// TextTable: a table whose columns are as wide as their content.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace cohort::report {

class TextTable {
 public:
  enum class Align { kLeft, kRight };
  void add_column(std::string title, Align align = Align::kRight) { columns_.push_back({std::move(title), align}); }
  /// Adds a row with a cell for each column; missing cells are empty.
  void add_row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  /// Returns titles, a rule and the rows, each with a newline.
  std::string text() const;

 private:
  struct Column {
    std::string title;
    Align align;
  };
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace cohort::report
