/// `cohort run` as a scheduler's task: every task is an agent, so one task per node needs no flags. Pure, but for
/// looking at this process's ancestors where MPICH is.
#pragma once

#include <string>

#include "cohort/rendezvous/scheduler_environment.h"
#include "cohort/rendezvous/settings.h"

namespace cohort::rendezvous {

struct SchedulerNote {
  /// What was filled in; or, as a warning, why this agent runs alone although it may not be. Empty if there is nothing to say.
  std::string text;
  bool is_warning = false;
};

/// Fills what the user left at its default: number of nodes, node rank, run id, and where the agents meet (the first host,
/// at MASTER_ADDR and MASTER_PORT if these are set). Nothing changes for a single task, --standalone or --nnodes=1.
SchedulerNote fill_from_scheduler(Flags& flags, const Variables& variables);

}  // namespace cohort::rendezvous
