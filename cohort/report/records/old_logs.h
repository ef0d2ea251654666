/// What an earlier run logged, where another one begins in its place.
#pragma once

#include <string>
#include <vector>

#include "cohort/base/error/result.h"

namespace cohort::report {

/// Gives the files and folders that are there new names with one number for all, "metrics.1.csv" for "metrics.csv", if one of the
/// files holds a record of CsvLog or JsonLinesLog. Returns the new names, without their folders.
base::Result<std::vector<std::string>> keep_old_logs(const std::vector<std::string>& paths);

}  // namespace cohort::report
