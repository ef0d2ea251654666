#include "cohort/report/terminal/text_table.h"

#include <algorithm>

#include "cohort/report/terminal/line_parts.h"

namespace cohort::report {
namespace {

std::string padded(const std::string& text, size_t width, TextTable::Align align) {
  const std::string room(width - std::min(width, num_columns(text)), ' ');
  return align == TextTable::Align::kLeft ? text + room : room + text;
}

void end_row(std::string& text, std::string row) {
  row.erase(row.find_last_not_of(' ') + 1);
  text += row + '\n';
}

}  // namespace

std::string TextTable::text() const {
  std::string titles, line, body;
  std::vector<std::string> rows(rows_.size());
  for (size_t i = 0; i < columns_.size(); ++i) {
    const auto cell = [&](const std::vector<std::string>& row) { return i < row.size() ? row[i] : std::string(); };
    size_t width = num_columns(columns_[i].title);
    for (const auto& row : rows_) width = std::max(width, num_columns(cell(row)));
    const std::string between = i > 0 ? "  " : "";
    titles += between + padded(columns_[i].title, width, columns_[i].align);
    line += between + std::string(width, '-');
    for (size_t r = 0; r < rows.size(); ++r) rows[r] += between + padded(cell(rows_[r]), width, columns_[i].align);
  }
  end_row(body, titles);
  end_row(body, line);
  for (const std::string& row : rows) end_row(body, row);
  return body;
}

}  // namespace cohort::report
