/// LineFile: a file of lines that a run goes on with.
///
/// A program that was killed, or a full disk, may have left a last line without its end: opening cuts it off.
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
  /// Folders above the file are made.
  static base::Result<LineFile> open(const std::string& path, AppendFile::Start start);

  const std::string& path() const { return file_.path(); }
  bool is_empty() const { return file_.size() == 0; }

  /// Gives each line, without its end and counted from 1, to `change`, which returns what the file holds from then on: the line,
  /// another one, or "" for none. The file is replaced, whole, where that is another content. A line has at most 16 MiB.
  using Change = std::function<base::Result<std::string_view>(int64_t number, std::string_view line)>;
  base::Result<void> change_lines(const Change& change);
  /// `line`: with its end.
  base::Result<void> append(std::string_view line) { return file_.append(line); }
  base::Result<void> sync() { return file_.sync(); }

 private:
  explicit LineFile(AppendFile file) : file_(std::move(file)) {}
  base::Result<void> cut_last_line();
  AppendFile file_;
};

/// Gives each line, without its end and counted from 1, to `visit`, and stops at its first error. A last line without an end is
/// left out. A line has at most 16 MiB.
using LineVisitor = std::function<base::Result<void>(int64_t number, std::string_view line)>;
base::Result<void> visit_lines(const std::string& path, const LineVisitor& visit);

/// `"run/metrics.csv", line 3: expected ..., but found "..."`
base::Error line_error(const std::string& path, int64_t number, std::string_view expected, std::string_view found);

}  // namespace cohort::report
