/// TextTable: columns of a table, as wide as what is in them.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace cohort::report {

class TextTable {
 public:
  enum class Align { kLeft, kRight };
  void add_column(std::string title, Align align = Align::kRight) { columns_.push_back({std::move(title), align}); }
  /// A cell for each column; missing ones are empty.
  void add_row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  /// Titles, a line, the rows; each ended.
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
