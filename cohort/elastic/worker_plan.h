/// Everything about each worker of one round, before it is started.
#pragma once

#include <string>
#include <vector>

#include "cohort/base/result.h"
#include "cohort/elastic/launch.h"
#include "cohort/elastic/worker_group.h"
#include "cohort/rendezvous/rendezvous.h"

namespace cohort::elastic {

/// One specification per local rank. `attempt_folder` is "" if there are no log files at all.
base::Result<std::vector<WorkerSpec>> plan_workers(const LaunchOptions& options, const LaunchPlan& plan,
                                                   const rendezvous::Round& round, const std::string& attempt_folder);

}  // namespace cohort::elastic
