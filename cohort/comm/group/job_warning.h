/// Warnings whose reason is the same on all ranks: one rank prints them.
#pragma once

#include <string>

namespace cohort::comm {

/// Calls base::warn_once() if this process is rank 0 or has no default group.
void warn_once_per_job(const std::string& message);

}  // namespace cohort::comm
