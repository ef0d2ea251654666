#include "cohort/pipeline/csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cohort/base/file/atomic_file.h"
#include "cohort/base/file/file.h"
#include "cohort/base/text/text.h"
#include "cohort/pipeline/action_text.h"

namespace cohort::pipeline {
namespace {

constexpr size_t kLargestCsv = size_t{32} << 20;

class CsvReader {
 public:
  CsvReader(const std::string& name, std::string_view text) : name_(name), rest_(text) {}

  base::Result<PipelineOrder> read() {
    PipelineOrder order;
    while (!rest_.empty()) {
      ++line_number_;
      if (order.size() == kMostRanks) return error(1, fmt::format("a pipeline has at most {} ranks", kMostRanks));
      const size_t end = rest_.find('\n');
      auto line = rest_.substr(0, end);
      rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
      if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
      auto list = read_line(line);
      if (!list) return std::move(list).error();
      order.push_back(std::move(*list));
    }
    return order;
  }

 private:
  base::Error error(size_t column, std::string_view message) const {
    return base::Error(fmt::format("\"{}\", line {}, column {}: {}", name_, line_number_, column, message));
  }

  base::Result<ActionList> read_line(std::string_view line) {
    ActionList list;
    size_t at = 0;
    while (at <= line.size() && !line.empty()) {
      const size_t column = at + 1;
      auto cell = take_cell(line, &at);
      if (!cell) return std::move(cell).error();
      if (++num_actions_ > kMostActions)
        return error(column, fmt::format("a list has at most {} actions", kMostActions));
      auto action = parse_action(*cell);
      if (!action) return error(column, action.error().message());
      list.push_back(std::move(*action));
    }
    return list;
  }

  // Reads a cell, which may be in quotes. `at` is behind its comma afterwards.
  base::Result<std::string_view> take_cell(std::string_view line, size_t* at) const {
    const size_t begin = *at;
    if (begin < line.size() && line[begin] == '"') {
      const size_t end = line.find('"', begin + 1);
      if (end == std::string_view::npos) return error(begin + 1, "its quote is not closed");
      if (end + 1 < line.size() && line[end + 1] != ',') return error(end + 2, "expected a comma behind a quote");
      *at = end + 2;
      return line.substr(begin + 1, end - begin - 1);
    }
    const size_t end = std::min(line.find(',', begin), line.size());
    *at = end + 1;
    return line.substr(begin, end - begin);
  }

  const std::string& name_;
  std::string_view rest_;
  size_t line_number_ = 0;
  size_t num_actions_ = 0;
};

}  // namespace

base::Result<PipelineOrder> parse_csv(const std::string& name, std::string_view text) {
  if (text.size() > kLargestCsv) {
    return base::Error(
        fmt::format("\"{}\" is too large for a list of actions: {}", name, base::format_bytes(text.size())));
  }
  return CsvReader(name, text).read();
}

std::string csv_text(const PipelineOrder& order) {
  std::string text;
  for (const ActionList& list : order) {
    // An empty line would be a rank without actions.
    const bool is_one_idle = list.size() == 1 && list.front().kind == ActionKind::kIdle;
    if (is_one_idle) text += "\"\"";
    for (size_t i = 0; i < list.size(); ++i) text += (i ? "," : "") + text_of(list[i]);
    text += "\r\n";
  }
  return text;
}

base::Result<PipelineOrder> load_csv(const std::string& path) {
  auto text = base::read_file(path, kLargestCsv);
  if (!text) return std::move(text).error();
  return parse_csv(path, *text);
}

base::Result<void> save_csv(const std::string& path, const PipelineOrder& order) {
  return base::write_file_atomically(path, csv_text(order));
}

}  // namespace cohort::pipeline
