/// The rendezvous of a job with one node: it needs no thread, and no network except the workers' store. Private to this folder.
#pragma once

#include <memory>

#include "cohort/rendezvous/rendezvous.h"

namespace cohort::rendezvous {

base::Result<std::unique_ptr<Rendezvous>> start_standalone(const Settings& settings);

}  // namespace cohort::rendezvous
