/// A process and all its descendants, and their memory.
#pragma once

#include <sys/types.h>

#include <set>
#include <string>
#include <vector>

namespace cohort::bench {

/// Returns `root`, if it lives, and all its descendants, without those in `without` and their descendants.
std::vector<pid_t> process_tree(pid_t root, const std::set<pid_t>& without = {});

/// Returns the number in line `name` of /proc/<pid>/status or smaps_rollup, mostly in KiB; 0 if the line is missing, as for a
/// process that has ended.
long number_after(const std::string& text, const std::string& name);

/// Returns the tree's proportional set size in MiB: shared memory counts once. Throws std::runtime_error if `root` has ended.
double tree_memory(pid_t root);

}  // namespace cohort::bench
