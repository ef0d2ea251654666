/// Everything about each worker of one round, before it is started.
#pragma once

#include <string>
#include <vector>

#include "cohort/base/result.h"
#include "cohort/elastic/launch.h"
#include "cohort/elastic/worker_group.h"
#include "cohort/rendezvous/rendezvous.h"

namespace cohort::elastic {

/// What workers of this node get in one round; "" where there is none.
struct AttemptFiles {
  /// For logs and error files.
  std::string folder;
  /// The named pipe of the watchdog timers.
  std::string timer_file;
  /// Not a path: what marks all that descends from this agent (orphans.h).
  std::string mark;
  /// Not a path: the vault of their snapshots.
  std::string vault = {};
};

/// One specification per local rank.
base::Result<std::vector<WorkerSpec>> plan_workers(const LaunchOptions& options, const LaunchPlan& plan,
                                                   const rendezvous::Round& round, const AttemptFiles& files);

}  // namespace cohort::elastic
