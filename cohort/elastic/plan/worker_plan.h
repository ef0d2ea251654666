/// Everything about each worker of one round, before it is started.
#pragma once

#include <string>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/elastic/plan/worker_environment.h"
#include "cohort/elastic/plan/worker_spec.h"

namespace cohort::elastic {

/// One specification per local rank.
base::Result<std::vector<WorkerSpec>> plan_workers(const LaunchPlan& plan, const rendezvous::Round& round,
                                                   const AttemptFiles& files);

}  // namespace cohort::elastic
