/// What the kernel tells of a process of this host (/proc/<pid>/stat).
#pragma once

#include <string>

namespace cohort::base {

struct ProcessState {
  bool exists = false;
  /// 'R' running, 'S' sleeping, 'D' in uninterruptible sleep, 'T' stopped, 'Z' ended but not waited for.
  char state = '?';
  /// The process that it is a child of; 0 where /proc does not show it.
  int parent = 0;
  /// User and system time, in clock ticks.
  unsigned long long cpu_ticks = 0;
  /// In clock ticks since boot, so that a reused pid is not mistaken for the process; empty where /proc does not show it.
  std::string started_at;
  /// As waitpid gives it, of a process in state 'Z' whose owner we are; 0 otherwise.
  int wait_status = 0;

  bool gone() const { return !exists || state == 'Z' || state == 'X'; }
  /// Gone, or another process with the number of one that began at `start`. Where /proc is hidden the number alone counts.
  bool is_gone_since(const std::string& start) const {
    return gone() || (!started_at.empty() && !start.empty() && started_at != start);
  }
};

ProcessState read_process_state(int pid);

enum class ProcessActivity { kGone, kStopped, kBlocked, kComputing, kAsleep };
/// Looks twice, 50 ms apart.
ProcessActivity read_process_activity(int pid);
/// "is stopped (SIGSTOP or a debugger)", "is computing", "is asleep".
const char* in_words(ProcessActivity activity);

}  // namespace cohort::base
