/// What a launcher itself holds while its workers run.
#pragma once

#include <sys/types.h>

#include <set>

namespace cohort::bench {

/// MiB of `launcher` and of all that descends from it, such as a guard, but for its workers and what these have started: the sum
/// of the most that each process has held so far (resident set; what processes share is counted for each of them).
/// Throws std::runtime_error if `launcher` has ended.
double launcher_memory(pid_t launcher, const std::set<pid_t>& workers);

}  // namespace cohort::bench
