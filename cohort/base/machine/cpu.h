/// The number of cores that this process may use, and the number of threads for each rank.
#pragma once

#include <optional>
#include <string>

namespace cohort::base {

/// Returns the smaller of the affinity mask and the cgroup cpu quota (versions 1 and 2), rounded down, at least 1.
int available_cores();

/// Returns available_cores() / ranks_on_host, at least 1.
int default_threads_per_rank(int ranks_on_host);

/// Returns the cgroup quota in cores; nullopt without a quota. `mount` is the folder where cgroups are mounted, `membership` the
/// text of /proc/self/cgroup.
std::optional<double> cgroup_core_limit(const std::string& mount, const std::string& membership);

}  // namespace cohort::base
