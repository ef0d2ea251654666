/// Turns signals into events to wait for, instead of handlers that may run anywhere.
#pragma once

#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include "cohort/base/error/result.h"
#include "cohort/base/file/file.h"

namespace cohort::elastic {

/// Converts "SIGTERM,SIGINT" to numbers. An unknown name, SIGKILL or SIGSTOP is an error.
base::Result<std::vector<int>> parse_signals(const std::string& text);

/// Blocks the given signals while it lives, and returns them one by one. Drops those that still wait when it ends. Leaves SIGHUP
/// alone if the parent process set it to be ignored (nohup).
/// Thread-safety: create it before any thread is started; threads inherit the blocked signals.
class SignalSource {
 public:
  static base::Result<SignalSource> create(const std::vector<int>& signals);
  SignalSource(SignalSource&& other) noexcept = default;
  ~SignalSource();

  /// Readable while a signal waits.
  int fd() const { return fd_.get(); }
  /// Returns the next signal; nothing if none waits.
  std::optional<int> next();

 private:
  SignalSource() = default;
  base::Fd fd_;
  sigset_t mask_before_{};
};

}  // namespace cohort::elastic
