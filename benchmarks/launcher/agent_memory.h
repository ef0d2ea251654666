/// Measures the memory of a launcher while its workers run.
#pragma once

#include <sys/types.h>

#include <set>

namespace cohort::bench {

/// Returns the MiB of `launcher` and all its descendants, such as a guard, without its workers and their descendants: the sum of
/// each process's peak resident set (shared memory counts for each process). Throws std::runtime_error if `launcher` has ended.
double launcher_memory(pid_t launcher, const std::set<pid_t>& workers);

}  // namespace cohort::bench
