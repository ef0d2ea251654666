/// LineFile: a file of lines that a run continues.
///
/// A program that was killed, or a full disk, may have left an incomplete last line: opening removes it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "cohort/base/error/result.h"
#include "cohort/report/records/append_file.h"

namespace cohort::report {

/// Thread-safety: one thread at a time.
class LineFile {
 public:
  /// Opens the file and creates missing folders above it.
  static base::Result<LineFile> open(const std::string& path, AppendFile::Start start);

  const std::string& path() const { return file_.path(); }
  bool is_empty() const { return file_.size() == 0; }

  /// Calls `change` with each line, without its newline and counted from 1. `change` returns the new content: the line, another
  /// one, or "" to delete it. The file is replaced as a whole if this changes it. A line may have 16 MiB.
  using Change = std::function<base::Result<std::string_view>(int64_t number, std::string_view line)>;
  base::Result<void> change_lines(const Change& change);
  /// Appends `line`, which must end in a newline.
  base::Result<void> append(std::string_view line) { return file_.append(line); }
  base::Result<void> sync() { return file_.sync(); }

 private:
  explicit LineFile(AppendFile file) : file_(std::move(file)) {}
  base::Result<void> cut_last_line();
  AppendFile file_;
};

/// Calls `visit` with each line, without its newline and counted from 1, and stops at its first error. Ignores an incomplete last
/// line. A line may have 16 MiB.
using LineVisitor = std::function<base::Result<void>(int64_t number, std::string_view line)>;
base::Result<void> visit_lines(const std::string& path, const LineVisitor& visit);

/// Returns the error `"run/metrics.csv", line 3: expected ..., but found "..."`.
base::Error line_error(const std::string& path, int64_t number, std::string_view expected, std::string_view found);

}  // namespace cohort::report
