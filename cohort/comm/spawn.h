/// spawn: run one function as several ranks, each a process of its own. Follows torch/multiprocessing/spawn.py.
///
/// The ranks are forked, so `fn` may capture anything the program has built so far. Threads do not survive a fork, so
/// call spawn before the first parallel tensor operation: a process that already has other threads is refused, by name.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>

#include "cohort/export.h"

namespace cohort {

/// One rank ended badly. what() reads as PyTorch's: the error text, the exit code or the signal's name.
class COHORT_API ProcessFailedError : public std::runtime_error {
 public:
  ProcessFailedError(const std::string& message, int error_index, int error_pid)
      : std::runtime_error(message), error_index(error_index), error_pid(error_pid) {}
  int error_index;
  int error_pid;
};

/// `fn` threw; what() holds the text of its exception.
class COHORT_API ProcessRaisedError : public ProcessFailedError {
 public:
  using ProcessFailedError::ProcessFailedError;
};

/// The process died without an exception: "process 1 terminated with signal SIGKILL".
class COHORT_API ProcessExitedError : public ProcessFailedError {
 public:
  ProcessExitedError(const std::string& message, int error_index, int error_pid, int exit_code)
      : ProcessFailedError(message, error_index, error_pid), exit_code(exit_code) {}
  /// Exit code, or minus the signal's number.
  int exit_code;
};

/// Runs fn(0) ... fn(nprocs - 1), each in a new process, and waits for all of them.
/// The first failure ends the others (SIGTERM, after 30 s SIGKILL) and is thrown. No rank outlives the caller.
/// Unless OMP_NUM_THREADS is set, each rank's LibTorch uses cores / nprocs threads.
/// Throws std::invalid_argument if nprocs < 1, std::runtime_error if the process already has other threads.
COHORT_API void spawn(const std::function<void(int)>& fn, int nprocs = 1);

}  // namespace cohort
