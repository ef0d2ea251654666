/// Runs a function in a forked process and breaks it at one of its system calls that touch files: the process is killed there, or
/// the call fails. Trying one call after the other shows that a save is sound at every point.
///
///     for (int call = 1;; ++call) {
///       const FaultOutcome outcome = run_with_fault([&] { save(); return 0; }, {.call = call});
///       ... what must hold whatever happened
///       if (!outcome.was_reached) break;
///     }
///
/// The function runs in a copy of this process with one thread (fork), and may start others. Calls on the standard streams do not
/// count, nor do calls that look only.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace cohort::test {

struct FaultPoint {
  /// Counted from 1; 0: none.
  int call = 0;
  /// The call does nothing and fails with it; 0: the process is killed before the call does anything.
  int error_number = 0;
};

struct FaultOutcome {
  /// False: the function made fewer calls.
  bool was_reached = false;
  /// The name of the call at the point, such as "rename"; empty unless reached.
  std::string call;
  /// What the function returned; -1 if it was killed, -2 if something else ended the process.
  int exit_code = 0;
  /// The calls that were made, in their order.
  std::vector<std::string> calls;
};

/// Where files cost little, for they are synced often: memory, if there is such a folder.
std::string folder_for_faults();

/// False where tracing is not possible: another processor, or a sandbox without ptrace.
bool can_inject_faults();
FaultOutcome run_with_fault(const std::function<int()>& fn, const FaultPoint& point);

}  // namespace cohort::test
