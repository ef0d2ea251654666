/// The environment variables of a worker: torchrun's contract, as a pure function.
#pragma once

#include <map>
#include <string>

#include "cohort/elastic/plan/launch_plan.h"
#include "cohort/rendezvous/rendezvous.h"

namespace cohort::elastic {

/// Files and places for the workers of this node in one round; "" if there is none.
struct AttemptFiles {
  /// The folder for logs and error files.
  std::string folder;
  /// The named pipe of the watchdog timers.
  std::string timer_file;
  /// Not a path: the value of COHORT_AGENT, which marks all processes that descend from this agent (orphans.h).
  std::string mark;
  /// Not a path: the place of the workers' snapshot server, the value of COHORT_SNAPSHOTS (snapshot/place.h).
  std::string snapshot_server = {};
};

/// Returns the launcher's own variables plus those of torchrun's contract, which win.
std::map<std::string, std::string> worker_environment(const LaunchPlan& plan, const rendezvous::Round& round,
                                                      const AttemptFiles& files, int local_rank,
                                                      std::map<std::string, std::string> inherited);

}  // namespace cohort::elastic
