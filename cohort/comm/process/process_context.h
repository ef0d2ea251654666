/// The processes that spawn(fn, nprocs, join = false) has started. Follows ProcessContext in torch/multiprocessing/spawn.py.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

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
  ProcessExitedError(const std::string& message, int error_index, int error_pid, int exit_code,
                     std::string signal_name = {})
      : ProcessFailedError(message, error_index, error_pid),
        exit_code(exit_code),
        signal_name(std::move(signal_name)) {}
  /// Exit code, or minus the signal's number.
  int exit_code;
  /// "SIGKILL", "<Unknown signal 40>"; empty for an exit code.
  std::string signal_name;
};

/// Ranks that run. One thread at a time. Move-only; a moved-from context has no ranks.
class COHORT_API ProcessContext {
 public:
  /// No ranks.
  ProcessContext();
  ProcessContext(ProcessContext&& other) noexcept;
  ProcessContext& operator=(ProcessContext&& other) noexcept;
  /// Ends the ranks that still run (SIGTERM, after 30 s SIGKILL) and waits for them. In a fork of the process that called
  /// spawn it does nothing.
  ~ProcessContext();

  /// By rank; also of ranks that have ended.
  std::vector<int> pids() const;

  /// Waits until some rank that was not joined yet has ended, or `timeout` has passed (none: as long as it takes; 0: looks once).
  /// Joins what has ended: true once all ranks have ended well, false while some are left. So: `while (!context.join()) {}`.
  /// When a rank has ended badly, the others have `grace_period` to end by themselves (none: no time), then get SIGTERM, and
  /// SIGKILL after another `grace_period` (none: 30 s). Then the bad end is thrown as ProcessRaisedError or ProcessExitedError;
  /// a further join() throws for the next rank that ended badly, those ended by these signals included, as PyTorch's does.
  /// Throws std::logic_error in another process than the one that called spawn.
  bool join(std::optional<std::chrono::milliseconds> timeout = {},
            std::optional<std::chrono::milliseconds> grace_period = {});

 private:
  friend struct StartedRanks;
  struct Ranks;
  std::unique_ptr<Ranks> ranks_;
};

}  // namespace cohort
