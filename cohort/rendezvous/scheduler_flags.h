/// `cohort run` as a scheduler's task: every task is an agent, so one task per node needs no flags. Pure.
#pragma once

#include <string>

#include "cohort/rendezvous/scheduler_environment.h"
#include "cohort/rendezvous/settings.h"

namespace cohort::rendezvous {

/// Fills what the user left at its default: number of nodes, node rank, run id, and where the agents meet (the first host,
/// at MASTER_ADDR and MASTER_PORT if these are set). Nothing changes for a single task, --standalone or --nnodes=1.
/// Returns what it did, or why it could not, as a sentence to log; empty if there is nothing to say.
std::string fill_from_scheduler(Flags& flags, const Variables& variables);

}  // namespace cohort::rendezvous
