/// JsonLinesLog: a run's numbers, with a JSON object per line. Numbers that are not finite are the texts "NaN", "Infinity" and
/// "-Infinity", because JSON has no numbers for them.
#pragma once

#include <functional>
#include <string>

#include "cohort/base/error/result.h"
#include "cohort/report/records/line_file.h"
#include "cohort/report/records/run_record.h"

namespace cohort::report {

/// Thread-safety: one thread at a time.
class JsonLinesLog {
 public:
  /// Fails if the file has a line that this class cannot have written.
  static base::Result<JsonLinesLog> open(const std::string& path, const RunLogOptions& options = {});

  const std::string& path() const { return file_.path(); }
  base::Result<void> add(const RunRecord& record);
  base::Result<void> add_hyperparameters(const HyperparameterList& values, double time);
  base::Result<void> sync() { return file_.sync(); }

 private:
  explicit JsonLinesLog(LineFile file) : file_(std::move(file)) {}
  LineFile file_;
};

/// Calls `visit` with each record of such a file.
base::Result<void> read_json_lines(const std::string& path, const std::function<void(const RunRecord&)>& visit);

}  // namespace cohort::report
