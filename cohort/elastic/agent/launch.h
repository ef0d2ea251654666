/// One job on this node, from plan to exit code: what `cohort run` does.
#pragma once

#include "cohort/base/error/result.h"
#include "cohort/elastic/output/console.h"
#include "cohort/elastic/plan/launch_plan.h"

namespace cohort::elastic {

/// Runs the job and prints the report of a failure to stderr.
/// Returns the exit code: 0 if every worker ended with 0, else 1. Errors: nothing was started, or not everything.
/// Requires that this process has no other threads. Leaves the signals of `plan` ignored: the process should end now.
base::Result<int> launch(const LaunchPlan& plan, Consoles& consoles);

}  // namespace cohort::elastic
