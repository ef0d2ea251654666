/// Supports `cohort run` as a scheduler's task: every task is an agent, so one task per node needs no flags. Pure, except that it
/// looks up this process's ancestors with MPICH.
#pragma once

#include <string>

#include "cohort/rendezvous/environment/scheduler_environment.h"
#include "cohort/rendezvous/environment/settings.h"

namespace cohort::rendezvous {

struct SchedulerNote {
  /// The flags that were filled in; or a warning that this agent runs alone although the job may have more. Empty if there is
  /// nothing to say.
  std::string text;
  bool is_warning = false;
};

/// Fills in flags that the user left at their defaults: number of nodes, node rank, run id, and the endpoint (the first host, or
/// MASTER_ADDR and MASTER_PORT if these are set). Changes nothing for a single task, --standalone or --nnodes=1.
SchedulerNote fill_from_scheduler(Flags& flags, const Variables& variables);

}  // namespace cohort::rendezvous
