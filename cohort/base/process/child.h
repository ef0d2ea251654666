/// The children's side of Process::start_together: what happens between fork and exec.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <vector>

namespace cohort::base {

/// Everything a child needs, ready in memory: it may not allocate.
struct ChildPlan {
  const char* program = nullptr;
  char* const* arguments = nullptr;
  char* const* environment = nullptr;
  int output_fd = -1;
  int error_fd = -1;
  int announce_fd = -1;
  /// One bit per CPU, as the kernel takes them; nothing if empty.
  std::vector<unsigned long> cpu_mask;
};

struct FamilyPlan {
  std::vector<ChildPlan> children;
  pid_t parent = 0;
  /// A pipe for ChildReports, closed by exec.
  int report_fd = -1;
  /// An eventfd that is raised for each child that may be started by another.
  int go_fd = -1;
  /// Memory that the children share with us, one for each, 0 at first. The kernel itself enters the pid of each child that
  /// another starts, so none is unknown, whenever that other dies.
  pid_t* pids = nullptr;
};

/// `error_number` 0: the child has been started. Otherwise it could not be, if its pid is still 0, or it has failed before its
/// program ran.
struct ChildReport {
  size_t child;
  int error_number;
};

/// Forks the child `first`, which leads a new session and starts those from there to `end` in it: each a child of ours, and the
/// leader of its own process group. Returns its pid, or -1 with errno. Only async-signal-safe calls are made in the children.
pid_t fork_session(const FamilyPlan& plan, size_t first, size_t end);

}  // namespace cohort::base
