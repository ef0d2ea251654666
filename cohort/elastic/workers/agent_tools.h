/// What an agent and the workers' groups that it starts work with, all of it for the whole job.
#pragma once

#include <string>

#include "cohort/elastic/events/signals.h"
#include "cohort/elastic/output/console.h"
#include "cohort/elastic/output/log_routing.h"
#include "cohort/elastic/processes/orphans.h"
#include "cohort/elastic/processes/session.h"
#include "cohort/elastic/processes/watchdog_timer.h"
#include "cohort/vault/vault_server.h"

namespace cohort::elastic {

struct AgentTools {
  const LogFolder& folder;
  SessionGuard& guard;
  /// In the environment of everything that workers start (orphans.h).
  const std::string& mark;
  const Orphans& orphans;
  SignalSource& signals;
  Consoles& consoles;
  /// Null: workers' timers are not watched.
  WatchdogTimer* watchdog = nullptr;
  /// Null: nobody holds the workers' snapshots.
  vault::VaultServer* vault = nullptr;
};

}  // namespace cohort::elastic
