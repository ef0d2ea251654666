#include "cohort/train/logging/old_logs.h"

#include "cohort/base/log/log.h"
#include "cohort/base/text/text.h"
#include "cohort/comm/error/throw_error.h"
#include "cohort/report/records/old_logs.h"

namespace cohort::train::detail {

void keep_old_logs(const std::string& what, const std::vector<std::string>& paths) {
  const std::vector<std::string> names = comm::or_throw(report::keep_old_logs(paths), what);
  if (names.empty()) return;
  const std::string folder = paths[0].substr(0, paths[0].find_last_of('/') + 1);
  base::log_warning(what + ": the run begins at its first step; the logs of an earlier run in \"" +
                    (folder.empty() ? "./" : folder) + "\" are kept as " + base::join(names, ", "));
}

}  // namespace cohort::train::detail
