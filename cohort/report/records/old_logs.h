/// Keeps the logs of an earlier run when another run begins in the same folder.
#pragma once

#include <string>
#include <vector>

#include "cohort/base/error/result.h"

namespace cohort::report {

/// Renames the files and folders that exist, with one number for all ("metrics.csv" to "metrics.1.csv"), if one of the files has
/// a record of CsvLog or JsonLinesLog. Returns the new names, without their folders.
base::Result<std::vector<std::string>> keep_old_logs(const std::vector<std::string>& paths);

}  // namespace cohort::report
