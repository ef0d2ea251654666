/// CsvLog: a run's numbers as CSV. Its columns are "step", "time" and one per name, in the order in which names appear.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/report/records/line_file.h"
#include "cohort/report/records/run_record.h"

namespace cohort::report {

/// Thread-safety: one thread at a time.
class CsvLog {
 public:
  /// Fails for an existing file that this class cannot have written.
  static base::Result<CsvLog> open(const std::string& path, const RunLogOptions& options = {});

  const std::string& path() const { return file_.path(); }
  const std::vector<std::string>& columns() const { return columns_; }
  /// Adds a record. A new name adds a column: the file is then written again.
  base::Result<void> add(const RunRecord& record);
  base::Result<void> sync() { return file_.sync(); }

 private:
  explicit CsvLog(LineFile file) : file_(std::move(file)) {}
  base::Result<void> read_columns();
  base::Result<void> purge(int64_t step);
  base::Result<void> add_columns(const RunRecord& record);
  std::string header() const;
  LineFile file_;
  std::vector<std::string> columns_;
};

}  // namespace cohort::report
