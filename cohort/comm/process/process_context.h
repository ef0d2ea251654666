/// The processes that spawn(fn, nprocs, join = false) has started. Follows ProcessContext in torch/multiprocessing/spawn.py.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "cohort/export.h"

namespace cohort::comm {
struct StartedRanks;
}

namespace cohort {

/// A rank failed. what() has PyTorch's form: the error text, the exit code or the signal's name.
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

/// The process ended without an exception: "process 1 terminated with signal SIGKILL".
class COHORT_API ProcessExitedError : public ProcessFailedError {
 public:
  ProcessExitedError(const std::string& message, int error_index, int error_pid, int exit_code,
                     std::string signal_name = {})
      : ProcessFailedError(message, error_index, error_pid),
        exit_code(exit_code),
        signal_name(std::move(signal_name)) {}
  /// The exit code, or minus the signal's number.
  int exit_code;
  /// "SIGKILL", "<Unknown signal 40>"; empty if the process ended with an exit code.
  std::string signal_name;
};

/// Running ranks. One thread at a time. Move-only; a moved-from context has no ranks.
class COHORT_API ProcessContext {
 public:
  /// A context without ranks.
  ProcessContext();
  ProcessContext(ProcessContext&& other) noexcept;
  ProcessContext& operator=(ProcessContext&& other) noexcept;
  /// Ends the ranks that still run (SIGTERM, after 30 s SIGKILL) and waits for them. Does nothing in a fork of the process that
  /// called spawn.
  ~ProcessContext();

  /// Returns the process ids by rank, also of ranks that have ended.
  std::vector<int> pids() const;

  /// Waits until a rank that was not joined yet has ended, or `timeout` has passed (absent: no limit; 0: only checks).
  /// Joins all ranks that have ended. Returns true once all ranks have ended well, false before: `while (!context.join()) {}`.
  /// After a rank has failed, the others have `grace_period` to end by themselves (if absent, no time), then get SIGTERM, and
  /// SIGKILL after another `grace_period` (if absent, 30 s). Then join() throws ProcessRaisedError or ProcessExitedError. A
  /// further join() throws for the next failed rank, including ranks ended by these signals, as PyTorch's does.
  /// Throws std::logic_error in another process than the one that called spawn.
  bool join(std::optional<std::chrono::milliseconds> timeout = {},
            std::optional<std::chrono::milliseconds> grace_period = {});

 private:
  friend struct comm::StartedRanks;
  struct Ranks;
  std::unique_ptr<Ranks> ranks_;
};

}  // namespace cohort
