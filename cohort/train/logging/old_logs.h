/// Keeps the logs of an earlier run when a new run begins at the same place.
#pragma once

#include <string>
#include <vector>

#include "cohort/export.h"

namespace cohort::train::detail {

/// Renames the logs if they hold a record, with a warning. `what`: the logger, for the warning. Throws c10::Error.
COHORT_EXTRAS_API void keep_old_logs(const std::string& what, const std::vector<std::string>& paths);

}  // namespace cohort::train::detail
