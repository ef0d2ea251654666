/// Logs of an earlier run in the place of one that begins.
#pragma once

#include <string>
#include <vector>

#include "cohort/export.h"

namespace cohort::train::detail {

/// Gives them other names, if they hold a record, and says so in a warning. `what`: who asks. Throws c10::Error.
COHORT_EXTRAS_API void keep_old_logs(const std::string& what, const std::vector<std::string>& paths);

}  // namespace cohort::train::detail
