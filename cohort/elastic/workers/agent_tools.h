/// Objects that an agent and its worker groups use during the complete job.
#pragma once

#include <string>

#include "cohort/elastic/events/signals.h"
#include "cohort/elastic/output/console.h"
#include "cohort/elastic/output/log_routing.h"
#include "cohort/elastic/processes/orphans.h"
#include "cohort/elastic/processes/session.h"
#include "cohort/elastic/processes/watchdog_timer.h"
#include "cohort/snapshot/snapshot_server.h"

namespace cohort::elastic {

struct AgentTools {
  const LogFolder& folder;
  SessionGuard& guard;
  /// A value in the environment of everything that workers start (orphans.h).
  const std::string& mark;
  const Orphans& orphans;
  SignalSource& signals;
  Consoles& consoles;
  /// If null, workers' timers are not watched.
  WatchdogTimer* watchdog = nullptr;
  /// If null, there is no snapshot server for the workers.
  snapshot::SnapshotServer* snapshot_server = nullptr;
};

}  // namespace cohort::elastic
