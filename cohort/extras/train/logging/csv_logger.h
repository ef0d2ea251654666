/// CsvLogger: a run's numbers in a file that every program reads.
///
/// Columns "step", "time" (seconds since 1970) and one for each name, in the order they come; a cell is empty where a record
/// lacks it. A name that comes later adds a column: then the file is written again, whole or not at all.
///
/// Each record is one write at the end of the file. Opening what is there already cuts off a last line that was not written to
/// its end; any other line that this class cannot have written is an error that names file and line.
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
  /// Folders above the file are made.
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
