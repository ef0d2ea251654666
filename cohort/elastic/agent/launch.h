/// Runs one job on this node, from the plan to the exit code, for `cohort run`.
#pragma once

#include "cohort/base/error/result.h"
#include "cohort/elastic/output/console.h"
#include "cohort/elastic/plan/launch_plan.h"

namespace cohort::elastic {

/// Runs the job and prints the report of a failure to stderr. Returns the exit code: 0 if every worker ended with 0, else 1.
/// Errors: no worker, or not every worker, could be started. Requires that this process has no other threads. Leaves the signals
/// of `plan` ignored, so the process should end afterwards.
base::Result<int> launch(const LaunchPlan& plan, Consoles& consoles);

}  // namespace cohort::elastic
