/// WorkerSpec: everything about one worker of a round that is known before it starts.
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
  /// The prefix of each line that tee shows.
  std::string line_prefix;
  /// The CPUs on which it may run. If empty, it may run on all.
  std::vector<int> cpus;
};

}  // namespace cohort::elastic
