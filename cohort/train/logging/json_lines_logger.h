/// JsonLinesLogger: writes a run's numbers as JSON, one line per record.
///
/// Lines are {"step": 12, "time": 1.7e9, "train/loss": 0.5} and {"hyperparameters": {...}, "time": ...}; times are in seconds
/// since 1970. Numbers that are not finite become "NaN", "Infinity" or "-Infinity", as JSON has no numbers for them.
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
class JsonLinesLog;
}  // namespace cohort::report

namespace cohort::train {

class COHORT_API JsonLinesLogger : public Logger {
 public:
  /// Makes the folders above the file.
  explicit JsonLinesLogger(const std::string& path, const LoggerOptions& options = {});
  ~JsonLinesLogger() override;
  JsonLinesLogger(const JsonLinesLogger&) = delete;
  JsonLinesLogger& operator=(const JsonLinesLogger&) = delete;
  void log_hyperparameters(const Hyperparameters& values) override;
  void log_metrics(int64_t step, const Metrics& values) override;
  void flush() override;
  void close() override;

 private:
  std::unique_ptr<report::JsonLinesLog> log_;
};

}  // namespace cohort::train
