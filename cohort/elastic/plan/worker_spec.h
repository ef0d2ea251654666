/// WorkerSpec: everything about one worker of a round, before it is started.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cohort/elastic/output/log_routing.h"

namespace cohort::elastic {

struct WorkerSpec {
  int rank = 0;
  int local_rank = 0;
  std::vector<std::string> command;
  std::map<std::string, std::string> environment;
  WorkerRoutes routes;
  /// Stands before each line that is shown by tee.
  std::string line_prefix;
  /// Where it may run; everywhere if empty.
  std::vector<int> cpus;
};

}  // namespace cohort::elastic
