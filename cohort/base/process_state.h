/// What the kernel tells of a process of this host (/proc/<pid>/stat).
#pragma once

#include <string>

namespace cohort::base {

struct ProcessState {
  bool exists = false;
  /// 'R' running, 'S' sleeping, 'D' in uninterruptible sleep, 'T' stopped, 'Z' ended but not waited for.
  char state = '?';
  /// User and system time, in clock ticks.
  unsigned long long cpu_ticks = 0;
  /// In clock ticks since boot, so that a reused pid is not mistaken for the process.
  std::string started_at;
  /// As waitpid gives it, of a process in state 'Z' whose owner we are; 0 otherwise.
  int wait_status = 0;

  bool gone() const { return !exists || state == 'Z' || state == 'X'; }
};

ProcessState read_process_state(int pid);

/// "is stopped (SIGSTOP)", "is computing", "is asleep": looks twice, 50 ms apart.
std::string process_state_in_words(int pid);

}  // namespace cohort::base
