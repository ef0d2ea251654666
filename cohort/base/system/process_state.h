/// The kernel's information about a process of this host (/proc/<pid>/stat).
#pragma once

#include <string>

namespace cohort::base {

struct ProcessState {
  bool exists = false;
  /// The state: 'R' running, 'S' sleeping, 'D' in uninterruptible sleep, 'T' stopped, 'Z' ended but not waited for.
  char state = '?';
  /// The parent process; 0 if /proc does not show it.
  int parent = 0;
  /// User and system time, in clock ticks.
  unsigned long long cpu_ticks = 0;
  /// The start in clock ticks since boot, so that a reused pid is not mistaken for the process; empty if /proc does not show it.
  std::string started_at;
  /// The status that waitpid returns, for a process in state 'Z' that belongs to this user; 0 otherwise.
  int wait_status = 0;

  bool gone() const { return !exists || state == 'Z' || state == 'X'; }
  /// Whether the process that began at `start` has ended; its pid may be reused. If /proc is hidden, only the pid counts.
  bool is_gone_since(const std::string& start) const {
    return gone() || (!started_at.empty() && !start.empty() && started_at != start);
  }
};

ProcessState read_process_state(int pid);

enum class ProcessActivity { kGone, kStopped, kBlocked, kComputing, kAsleep };
/// Reads the state twice, 50 ms apart.
ProcessActivity read_process_activity(int pid);
/// Returns "is stopped (SIGSTOP or a debugger)", "is computing", "is asleep".
const char* in_words(ProcessActivity activity);

}  // namespace cohort::base
