/// A process and all that descends from it, and what they hold.
#pragma once

#include <sys/types.h>

#include <set>
#include <string>
#include <vector>

namespace cohort::bench {

/// `root`, if it lives, and all that descends from it, but for `without` and what these have started.
std::vector<pid_t> process_tree(pid_t root, const std::set<pid_t>& without = {});

/// The number of the line `name` in /proc/<pid>/status or smaps_rollup, mostly KiB; 0 where there is none, as for a process that
/// has ended.
long number_after(const std::string& text, const std::string& name);

/// MiB of the tree's proportional set size: what processes share counts once. Throws std::runtime_error if `root` has ended.
double tree_memory(pid_t root);

}  // namespace cohort::bench
