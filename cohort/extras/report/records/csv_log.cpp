#include "cohort/extras/report/records/csv_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "cohort/base/text/text.h"
#include "cohort/extras/files/arrays/csv_reader.h"

namespace cohort::report {
namespace {

constexpr const char* kCsvStart = "step,time";

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"") == std::string::npos) return text;
  return '"' + base::replace_all(text, "\"", "\"\"") + '"';
}

// Returns the step of a row of this class: numbers without quotes.
base::Result<long long> step_of_row(const std::string& path, int64_t number, std::string_view row, size_t num_columns) {
  const auto num_commas = static_cast<size_t>(std::count(row.begin(), row.end(), ','));
  const std::optional<long long> step = base::parse_int(row.substr(0, row.find(',')));
  if (num_commas + 1 == num_columns && step && *step >= 0) return *step;
  return line_error(path, number, fmt::format("a step and {} more fields", num_columns - 1), row);
}

}  // namespace

base::Result<CsvLog> CsvLog::open(const std::string& path, const RunLogOptions& options) {
  auto file = LineFile::open(path, options.overwrite ? AppendFile::Start::kEmpty : AppendFile::Start::kGoOn);
  if (!file) return file.error();
  CsvLog log(std::move(file).value());
  if (auto read = log.read_columns(); !read) return read.error();
  if (options.purge_step) {
    if (auto purged = log.purge(*options.purge_step); !purged) return purged.error();
  }
  return log;
}

base::Result<void> CsvLog::read_columns() {
  columns_ = {"step", "time"};
  if (file_.is_empty()) return file_.append(header() + "\n");
  auto reader = files::CsvReader::open(path());
  if (!reader) return reader.error();
  const std::vector<std::string>& names = reader->column_names();
  if (names.size() < 2 || names[0] != "step" || names[1] != "time") {
    return base::Error(
               fmt::format("\"{}\" is not a log of a run: its columns do not begin with \"{}\"", path(), kCsvStart))
        .with_hint("name another file, or set overwrite");
  }
  RunRecord named;
  for (size_t i = 2; i < names.size(); ++i) named.values.emplace_back(names[i], 0.0);
  if (auto checked = check_record(named); !checked) {
    return base::Error(fmt::format("\"{}\" is not a log of a run", path())).caused_by(checked.error());
  }
  columns_ = names;
  const auto check_row = [&](int64_t number, std::string_view line) -> base::Result<void> {
    if (number == 1) return {};
    if (auto step = step_of_row(path(), number, line, columns_.size()); !step) return step.error();
    return {};
  };
  return visit_lines(path(), check_row);
}

base::Result<void> CsvLog::purge(int64_t first_step) {
  return file_.change_lines([&](int64_t number, std::string_view line) -> base::Result<std::string_view> {
    if (number == 1) return line;
    auto step = step_of_row(path(), number, line, columns_.size());
    if (!step) return step.error();
    return *step < first_step ? line : std::string_view();
  });
}

base::Result<void> CsvLog::add(const RunRecord& record) {
  if (auto checked = check_record(record); !checked) return checked.error();
  if (auto added = add_columns(record); !added) return added.error();
  std::string row = fmt::format("{},{:.6f}", record.step, record.time);
  for (size_t i = 2; i < columns_.size(); ++i) {
    const auto is_column = [&](const auto& value) { return value.first == columns_[i]; };
    const auto value = std::find_if(record.values.begin(), record.values.end(), is_column);
    row += ',';
    if (value != record.values.end()) row += number_text(value->second);
  }
  return file_.append(row + "\n");
}

base::Result<void> CsvLog::add_columns(const RunRecord& record) {
  const std::vector<std::string> before = columns_;
  for (const auto& [name, value] : record.values) {
    if (std::find(columns_.begin(), columns_.end(), name) == columns_.end()) columns_.push_back(name);
  }
  if (columns_.size() == before.size()) return {};
  const std::string first_line = header(), more(columns_.size() - before.size(), ',');
  std::string changed_line;
  auto changed = file_.change_lines([&](int64_t number, std::string_view line) -> base::Result<std::string_view> {
    changed_line = number == 1 ? first_line : std::string(line) + more;
    return std::string_view(changed_line);
  });
  if (!changed) columns_ = before;
  return changed;
}

std::string CsvLog::header() const {
  std::vector<std::string> fields;
  for (const std::string& column : columns_) fields.push_back(csv_field(column));
  return base::join(fields, ",");
}

}  // namespace cohort::report
