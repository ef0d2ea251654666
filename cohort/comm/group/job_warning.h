/// Warnings about what is the same on all ranks: one rank says them.
#pragma once

#include <string>

namespace cohort::comm {

/// As base::warn_once(), where this process is rank 0 or has no default group.
void warn_once_per_job(const std::string& message);

}  // namespace cohort::comm
