/// CsvLogger: writes a run's numbers as CSV.
///
/// Columns are "step", "time" (seconds since 1970) and one per name, in the order in which names appear; a cell is empty if a
/// record lacks the name. A new name adds a column: the file is then written again, completely or not at all.
///
/// Each record is one write at the end of the file. Opening an existing file cuts off an incomplete last line; any other line
/// that this class cannot have written is an error that names file and line.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cohort/export.h"
#include "cohort/train/logging/logger.h"

namespace cohort::report {
class CsvLog;
}  // namespace cohort::report

namespace cohort::train {

class COHORT_API CsvLogger : public Logger {
 public:
  /// Makes the folders above the file.
  explicit CsvLogger(const std::string& path, const LoggerOptions& options = {});
  ~CsvLogger() override;
  CsvLogger(const CsvLogger&) = delete;
  CsvLogger& operator=(const CsvLogger&) = delete;
  void log_metrics(int64_t step, const Metrics& values) override;
  void flush() override;
  void close() override;

 private:
  std::unique_ptr<report::CsvLog> log_;
};

}  // namespace cohort::train
