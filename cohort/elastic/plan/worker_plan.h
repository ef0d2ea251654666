/// Makes the specifications of a round's workers.
#pragma once

#include <string>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/elastic/plan/worker_environment.h"
#include "cohort/elastic/plan/worker_spec.h"

namespace cohort::elastic {

/// Returns one specification per local rank.
base::Result<std::vector<WorkerSpec>> plan_workers(const LaunchPlan& plan, const rendezvous::Round& round,
                                                   const AttemptFiles& files);

}  // namespace cohort::elastic
