/// The variables that a worker finds in its environment: torchrun's contract, as a pure function.
#pragma once

#include <map>
#include <string>

#include "cohort/elastic/plan/launch_plan.h"
#include "cohort/rendezvous/rendezvous.h"

namespace cohort::elastic {

/// What workers of this node get in one round; "" where there is none.
struct AttemptFiles {
  /// For logs and error files.
  std::string folder;
  /// The named pipe of the watchdog timers.
  std::string timer_file;
  /// Not a path: what marks all that descends from this agent, COHORT_AGENT (orphans.h).
  std::string mark;
  /// Not a path: the vault of their snapshots, in COHORT_SNAPSHOTS (vault/place.h).
  std::string vault = {};
};

/// The launcher's own variables plus those of torchrun's contract, which win.
std::map<std::string, std::string> worker_environment(const LaunchPlan& plan, const rendezvous::Round& round,
                                                      const AttemptFiles& files, int local_rank,
                                                      std::map<std::string, std::string> inherited);

}  // namespace cohort::elastic
