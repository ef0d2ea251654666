/// The children's part of Process::start_together: the code between fork and exec.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <vector>

namespace cohort::base {

/// Everything that a child needs, prepared in memory, because a child may not allocate.
struct ChildPlan {
  const char* program = nullptr;
  char* const* arguments = nullptr;
  char* const* environment = nullptr;
  int output_fd = -1;
  int error_fd = -1;
  int announce_fd = -1;
  /// One bit per CPU, as the kernel takes them. If empty, the CPUs stay as they are.
  std::vector<unsigned long> cpu_mask;
};

struct FamilyPlan {
  std::vector<ChildPlan> children;
  pid_t parent = 0;
  /// A pipe for ChildReports, closed by exec.
  int report_fd = -1;
  /// An eventfd that is raised for each child that another child may start.
  int go_fd = -1;
  /// Memory shared with the children, one entry for each, 0 at first. The kernel itself writes the pid of each child that another
  /// child starts, so every pid is known even if that other child dies.
  pid_t* pids = nullptr;
};

/// If `error_number` is 0, the child has been started. Otherwise it could not be started (its pid is still 0), or it failed
/// before its program ran.
struct ChildReport {
  size_t child;
  int error_number;
};

/// Forks the child `first`, which leads a new session and starts the children from there to `end` in it: each is a child of this
/// process and the leader of its own process group. Returns its pid, or -1 with errno. Calls only async-signal-safe functions in
/// the children.
pid_t fork_session(const FamilyPlan& plan, size_t first, size_t end);

}  // namespace cohort::base
